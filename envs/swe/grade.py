"""Grading: the agent's changes in a fresh repository in a fresh sandbox, the hidden tests beside them, and a report that the tested code cannot sign.

    grade = Grader(backend, limits).grade(task, changes)

Each step is there because something else was cheated: the base tree is made anew, never taken from the agent's sandbox; only the changes that
changes.py lets through are applied; the hidden tests come in only now; they run in one process for each file of FAIL_TO_PASS and one for the others,
each in a sandbox that was reset; the results come over a channel that is not the tested code's (inside_supervisor.py); canaries and twins (twins.py)
show whether a failure would have been noticed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from agentgym.errors import DataError, EnvError

from . import twins
from .changes import Changes, flags
from .grade_bench import Bench, Run
from .sandbox import Backend, Limits, Sandbox
from .task import SweTask
from .twin_maker import twin

Cause = Literal["resolved", "failing", "regression", "no_change", "test_crash", "timeout", "cheat_suspected", "not_submitted"]
_GROUPS = 6  # processes for the files of FAIL_TO_PASS, at most
_SHOWN = 5


@dataclass(frozen=True)
class Grade:
    """What grading found.

    cause         resolved; failing: a test of FAIL_TO_PASS does; regression: one of PASS_TO_PASS; no_change: nothing that counts was changed;
                  test_crash: the tests could not be collected, or their process died; timeout; cheat_suspected; not_submitted
    fail_to_pass, pass_to_pass   (passed, all); what did not run because the grade was known already has not passed
    failures      the first tests that did not pass, with how they ended; or what spoke for a cheat
    dropped       changed files that were not graded, and why
    flags         what a person should look at; it decides nothing
    twins         twins of tests of FAIL_TO_PASS that were run, and failed as they must
    seconds       wall clock
    """

    cause: Cause
    fail_to_pass: tuple[int, int]
    pass_to_pass: tuple[int, int]
    failures: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    twins: int = 0
    seconds: float = 0.0

    @classmethod
    def without_tests(cls, task: SweTask, cause: Cause) -> Grade:
        """Return the grade of an episode whose tests need not be run."""
        return cls(cause, (0, len(task.fail_to_pass)), (0, len(task.pass_to_pass)))

    @property
    def resolved(self) -> bool:
        """Return whether all tests passed that have to."""
        return self.cause == "resolved"

    @property
    def fraction(self) -> float:
        """Return the share of FAIL_TO_PASS that passed, where all of PASS_TO_PASS did; else 0."""
        passed, all_ = self.fail_to_pass
        return passed / all_ if self.cause in ("resolved", "failing") and self.pass_to_pass[0] == self.pass_to_pass[1] else 0.0

    def as_info(self) -> dict[str, Any]:
        """Return the grade as JSON data, without the seconds: two plays of one episode have the same."""
        row = asdict(self) | {"dropped": dict(self.dropped)}
        del row["seconds"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


class Grader:
    """Grades one task after the other.

    seconds  of processor time for one run of tests; None: 60 for a package, 1800 for an image
    partial  run the other tests even where the first have failed: their share is asked for
    rng      where names of canaries come from; None: nobody can know
    """

    def __init__(
        self, backend: Backend, limits: Limits = Limits(), *, seconds: float | None = None, partial: bool = False, rng: random.Random | None = None
    ) -> None:
        self.backend, self.limits, self.seconds, self.partial = backend, limits, seconds, partial
        self._rng = rng or random.SystemRandom()
        self._lock = threading.Lock()
        self._box: Sandbox | None = None
        self._closed = False

    def grade(self, task: SweTask, changes: Changes) -> Grade:
        """Return the grade of some changes. Raises EnvError where the sandbox fails, never for what the tested code does."""
        start = time.monotonic()
        judge, looked_at = _Judge(task, self.partial, self._rng), list[str]()
        if not changes.files:
            judge.cause = "no_change"
        else:
            try:
                bench = Bench(self.backend, task, changes, limits=self.limits, seconds=self.seconds, hold=self._hold)
            except DataError as e:
                raise EnvError(f"the task {task.id!r} cannot be graded: {e}") from e
            with bench:
                looked_at = flags(changes, bench.before)
                judge.run(bench)
        return judge.grade(changes, looked_at, time.monotonic() - start)

    def _hold(self, box: Sandbox) -> Sandbox:
        """Keep a sandbox where `close` finds it."""
        with self._lock:
            if not self._closed:
                self._box = box
                return box
        box.close()
        raise EnvError("the grading was broken off")

    def close(self) -> None:
        """Break off a grading that another thread does; this grader is not used again."""
        with self._lock:
            self._closed = True
            box, self._box = self._box, None
        if box is not None:
            box.close()


class _Judge:
    """Runs group after group of tests, and stops where the grade is known."""

    def __init__(self, task: SweTask, partial: bool, rng: random.Random) -> None:
        self.task, self.partial, self.rng = task, partial, rng
        self.cause: Cause | None = None
        self.results: dict[str, tuple[str, str]] = {}  # test of the task → how it ended
        self.nodes: dict[str, list[str]] = {}  # test of the task → node ids
        self.why: list[str] = []
        self.twins = 0

    def run(self, bench: Bench) -> None:
        """Run the tests of FAIL_TO_PASS with their files, then the other files; where all have passed, the twins."""
        for files, tests in _groups(self.task, bench.files):
            run = self._with_canaries(bench, files, tests)
            self._take(run, tests)
            self._judge(run, tests)
            if self.cause:
                return
        if self._lost(self.task.fail_to_pass):
            self.cause = "failing"
            return
        self.cause = self._of_twins(bench) or "resolved"

    def _with_canaries(self, bench: Bench, files: Sequence[str], tests: Sequence[str]) -> Run:
        """Run some tests between two canaries."""
        made: list[tuple[str, str, list[str], list[str]]] = []
        for near in (files[0], files[-1]):
            made.append(twins.canary(near, lambda p: bench.text(p) is not None or any(p == c[0] for c in made), tests, self.rng))
        good, bad = ([t for c in made for t in c[i]] for i in (2, 3))
        only = [*tests, *good, *bad] if self.task.ids == "pytest" else None
        run = bench.run([made[0][0], *files, made[1][0]], only, {path: text for path, text, _, _ in made})
        if not run.cheat and (forged := [t for t in bad if run.passed(t)]):
            run.cheat = f"{len(forged)} of {len(bad)} tests that cannot pass are said to have passed"
        if not run.cheat and not run.end and (lost := [t for t in good + bad if t not in run.results or (t in good and not run.passed(t))]):
            run.end, run.said = "crash", f"{len(lost)} tests that have nothing to do with the code did not run as they should. {run.said}"
        return run

    def _take(self, run: Run, tests: Iterable[str]) -> None:
        """Note how the task's tests ended: where a name stands for several node ids, the one that went worst."""
        names: dict[str, list[str]] = {}
        for node in run.results:
            names.setdefault(node if self.task.ids == "pytest" else ".".join(node.split("::")[1:]), []).append(node)
        for test in tests:
            if test in names:
                self.nodes[test] = names[test]
                self.results[test] = min((run.results[node] for node in names[test]), key=lambda r: r[0] == "passed")

    def _judge(self, run: Run, tests: Sequence[str]) -> None:
        """Say the cause where this run decides it."""
        fail = set(self.task.fail_to_pass)
        lost = self._lost(tests)
        if run.cheat:
            self.cause, self.why = "cheat_suspected", [run.cheat]
        elif run.end:
            self.cause, self.why = ("timeout" if run.end == "late" else "test_crash"), [run.said]
        elif any(t in fail and t not in self.results for t in lost):
            absent = next(t for t in lost if t in fail and t not in self.results)
            self.cause, self.why = "test_crash", [f"{absent}: absent. {run.said}".rstrip()]
        elif any(t in fail for t in lost) and not self.partial:
            self.cause = "failing"
        elif any(t not in fail for t in lost):
            self.cause = "regression"

    def _lost(self, tests: Iterable[str]) -> list[str]:
        return [t for t in tests if self.results.get(t, ("absent", ""))[0] != "passed"]

    def _of_twins(self, bench: Bench) -> Cause | None:
        """Run the twins of FAIL_TO_PASS: where one passes, what the tested code's process says cannot be believed."""
        by_file: dict[str, list[str]] = {}
        for node in (n for t in self.task.fail_to_pass for n in self.nodes[t]):
            by_file.setdefault(twins.split_id(node)[0], []).append(node)
        known = [PurePosixPath(p).name for p in bench.files]
        made = {file: twin(bench.text(file) or "", nodes, self.rng, bench.root, known) for file, nodes in by_file.items()}
        found = {file: t for file, t in made.items() if t is not None}
        if not found:
            return None
        tests = [node for t in found.values() for node in t.must_fail]
        run = bench.run(sorted(found), tests, {file: t.text for file, t in found.items()})
        self.twins = sum(t in run.results for t in tests)
        passed = [t for t in tests if run.passed(t)]
        if not run.cheat and not passed:
            return None
        self.why = [run.cheat or f"{passed[0]} passes even where it cannot"]
        return "cheat_suspected"

    def grade(self, changes: Changes, looked_at: Sequence[str], seconds: float) -> Grade:
        """Return what was found."""
        counts = [(len(ids) - len(self._lost(ids)), len(ids)) for ids in (self.task.fail_to_pass, self.task.pass_to_pass)]
        if self.cause in ("failing", "regression"):
            lost = [t for t in self._lost((*self.task.fail_to_pass, *self.task.pass_to_pass)) if t in self.results]
            self.why = [f"{t}: {' '.join(self.results[t]).strip()}" for t in lost[:_SHOWN]]
        assert self.cause is not None
        return Grade(self.cause, counts[0], counts[1], tuple(self.why), changes.dropped, tuple(looked_at[:20]), self.twins, seconds)


def _groups(task: SweTask, files: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield (files, tests): a group for each file of FAIL_TO_PASS, then one for all other files. Names that have no file are one group."""
    every = (*task.fail_to_pass, *task.pass_to_pass)
    if task.ids != "pytest":
        yield list(files), list(every)
        return
    by_file: dict[str, list[str]] = {}
    for test in every:
        by_file.setdefault(twins.split_id(test)[0], []).append(test)
    first = list(dict.fromkeys(twins.split_id(t)[0] for t in task.fail_to_pass))
    groups = [[f] for f in first[: _GROUPS - 1]] + [first[_GROUPS - 1 :], sorted(by_file.keys() - set(first))]
    for group in groups:
        if group:
            yield group, [t for f in group for t in by_file[f]]
