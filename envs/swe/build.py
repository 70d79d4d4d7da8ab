"""Make the generated tasks: break packages by small changes, keep what some tests notice and most do not, and say in words what is wrong.

    build(Path("out"), packages=["first", "inflection"], per_package=40, workers=2)

writes out/tasks.jsonl.gz. What was tried is kept in out/journal, so a builder that was killed goes on where it was; the result does not depend on
the number of workers or on interruptions.
"""

from __future__ import annotations

import fcntl
import itertools
import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentgym.errors import DataError
from agentgym.progress import shown

from . import diffs, mutate, taskset
from .build_report import Report
from .build_run import RunTests
from .build_trial import Bench, Bug, Journal, Trial, kept_baseline
from .describe import describe, leaks
from .examples import Example
from .packages import PACKAGES, Package, package

_DOUBLES = 5  # every fifth task has two bugs
_TRIES = 6  # trials for each task that is wanted, at most
_SHARE = 4  # at most a quarter of the tasks in one function


def build(
    out: Path,
    *,
    packages: Sequence[str] | None = None,
    per_package: int = 40,
    workers: int = 1,
    seed: int = 0,
    progress: bool = True,
    run: RunTests | None = None,
) -> Report:
    """Build a task set in the folder `out`; return what came of it.

    packages     names; None: all of packages.py
    per_package  tasks of each, at most: a small package has fewer
    workers      runs of tests at a time
    seed         which bugs are tried, in which order
    run          runs the tests elsewhere, for example in a sandbox; None: a process of this machine
    Raises DataError where a package cannot be had or its tests do not run, and where another builder works in `out`.
    """
    if per_package < 1 or workers < 1:
        raise DataError(f"build(per_package={per_package}, workers={workers}): expected at least 1 of each")
    names = list(dict.fromkeys(packages)) if packages is not None else list(PACKAGES)
    chosen = [package(name) for name in names]
    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    report, lines = Report(out / "tasks.jsonl.gz"), list[dict[str, Any]]()
    with _alone(out), shown("building tasks", per_package * len(chosen), progress) as advance:
        for p in chosen:
            maker = _Maker(p, out, per_package, workers, seed, run, report, advance)
            lines += maker.lines()
            shutil.rmtree(out / "work", ignore_errors=True)
    heads = [line for line in lines if "id" not in line]
    report.sha256 = taskset.write(report.file, [*heads, *(line for line in lines if "id" in line)])
    report.seconds = time.monotonic() - start
    return report


class _alone:
    """Holds the folder against a second builder, for as long as this process lives."""

    def __init__(self, out: Path) -> None:
        self.file = open(out / "lock", "w")  # noqa: SIM115 - open while the lock is held
        self.out = out

    def __enter__(self) -> None:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise DataError(f"another builder works in {self.out}; wait for it, or name another folder") from e

    def __exit__(self, *error: object) -> None:
        self.file.close()


class _Maker:
    """Makes the tasks of one package."""

    def __init__(
        self,
        package: Package,
        out: Path,
        wanted: int,
        workers: int,
        seed: int,
        run: RunTests | None,
        report: Report,
        advance: Callable[[int], None],
    ) -> None:
        self.package, self.wanted, self.report, self.advance = package, wanted, report, advance
        self.benches = [Bench(package, out / "work" / f"{package.name}-{i}", run) for i in range(workers)]
        self.journal = Journal(out / "journal" / f"{package.name}.jsonl")
        self.base = kept_baseline(self.benches[0], out / "journal" / f"{package.name}-baseline.json.gz")
        self.seed = f"{seed}/{package.name}/{package.version}"
        self.free, self.lock = list(self.benches), threading.Lock()
        self.done = 0

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the task set for this package: itself, then its tasks."""
        try:
            singles = self._singles()
            doubles = self.wanted // _DOUBLES
            own, spare = singles[: self.wanted - doubles], singles[self.wanted - doubles :]
            made = [*own, *self._doubles(spare or singles, doubles)]
            if len(made) < self.wanted:
                made += singles[len(own) : len(own) + self.wanted - len(made)]
        finally:
            self.journal.close()
        self.advance(self.wanted - self.done)
        rows = [self._row(*task) for task in made]
        self.report.tasks[self.package.name] = len(rows)
        head = {"package": self.package.name, "version": self.package.version, "sha256": self.package.sha256, "tests": list(self.base.tests)}
        return [head, *sorted(rows, key=lambda row: str(row["id"]))]

    def _row(self, bug: Bug, trial: Trial, text: str) -> dict[str, Any]:
        level = difficulty(len(trial.failing), len(bug.sites))
        self.report.difficulty[level] += 1
        self.report.splits[self.package.split] += 1
        names = [site.operator for _, site in bug.sites]
        self.report.operators.update(names)
        return {
            "id": f"{self.package.name}-{bug.key[:10]}",
            "package": self.package.name,
            "patch": diffs.reverse(bug.diff),
            "problem": text,
            "fail": list(trial.failing),
            "difficulty": level,
            "split": self.package.split,
            "bugs": names,
        }

    # --- which bugs

    def _singles(self) -> list[tuple[Bug, Trial, str]]:
        """Return valid single bugs with their texts: enough for the tasks, and for the parts of double bugs."""
        enough = self.wanted - self.wanted // _DOUBLES + 2 * (self.wanted // _DOUBLES)
        out: list[tuple[Bug, Trial, str]] = []
        seen: set[object] = set()
        scopes: Counter[tuple[str, str]] = Counter()
        for bug, trial in self._tried(itertools.islice(self._plan(), _TRIES * self.wanted + 20)):
            (path, site) = bug.sites[0]
            marks = {(path, site.line), (path, site.scope, trial.failing)}
            if trial.kind != "valid" or marks & seen or scopes[path, site.scope] >= self._most(site):
                continue
            text = self._text(bug, [trial.examples], trial)
            if text is None:
                continue
            seen |= marks
            scopes[path, site.scope] += 1
            out.append((bug, trial, text))
            self._advance(1)
            if len(out) >= enough:
                break
        return out

    def _most(self, site: mutate.Site) -> int:
        """Return how many tasks may be in the function of a site; many more at the module's own level."""
        return max(4, self.wanted // _SHARE) * (1 if site.scope else 4)

    def _advance(self, n: int) -> None:
        n = min(n, self.wanted - self.done)
        self.done += n
        self.advance(n)

    def _plan(self) -> Iterator[Bug]:
        """Yield single bugs, the operators in turn, each with its sites in an order of chance; those of places that had their share come last."""
        rng = random.Random(self.seed)
        by: dict[str, list[tuple[str, mutate.Site]]] = defaultdict(list)
        for path, text in sorted(self.benches[0].text.items()):
            for site in mutate.sites(text):
                by[site.operator].append((path, site))
        for found in by.values():
            rng.shuffle(found)
        turns = itertools.chain.from_iterable(itertools.zip_longest(*(reversed(by[name]) for name in mutate.operators() if name in by)))
        had: Counter[tuple[str, int | str]] = Counter()
        later = []
        for path, site in filter(None, turns):
            lines, scope = (path, site.line), (path, site.scope)
            if had[lines] >= 2 or had[scope] >= 2 * self._most(site):
                later.append((path, site))
                continue
            had.update([lines, scope])
            yield from self._bugs([(path, site)])
        yield from self._bugs(later)

    def _bugs(self, places: Iterable[tuple[str, mutate.Site]]) -> Iterator[Bug]:
        for place in places:
            bug = self.benches[0].bug((place,))
            if bug is not None:
                yield bug

    def _doubles(self, parts: list[tuple[Bug, Trial, str]], wanted: int) -> list[tuple[Bug, Trial, str]]:
        """Return bugs of two parts each, in different functions, whose failing tests are more than those of either."""
        pairs: dict[str, tuple[Trial, Trial]] = {}
        bugs: list[Bug] = []
        for (a, one, _), (b, two, _) in itertools.islice(_pairs(parts), 4 * wanted):
            bug = self.benches[0].bug((*a.sites, *b.sites))
            if bug is not None and bug.key not in pairs:
                pairs[bug.key] = one, two
                bugs.append(bug)
        out: list[tuple[Bug, Trial, str]] = []
        used: set[tuple[str, mutate.Site]] = set()
        for bug, trial in self._tried(bugs):
            one, two = pairs[bug.key]
            both = set(one.failing) < set(trial.failing) and set(two.failing) < set(trial.failing)
            if trial.kind != "valid" or not both or used & set(bug.sites):
                continue
            groups = [_still(part.examples, trial.examples) for part in (one, two)]
            text = self._text(bug, groups, trial)
            if text is not None:
                used |= set(bug.sites)
                out.append((bug, trial, text))
            if len(out) == wanted:
                break
        return out

    def _text(self, bug: Bug, groups: Sequence[Sequence[Example]], trial: Trial) -> str | None:
        """Return a description that gives nothing away, or None."""
        for variant in range(4):
            text = describe(self.package.name, groups, len(trial.failing), f"{bug.key}/{variant}")
            if text is not None and leaks(text, bug.diff, self.base.tests) is None:
                return text
        self.report.unclear += 1
        return None

    # --- trials

    def _tried(self, bugs: Iterable[Bug]) -> Iterator[tuple[Bug, Trial]]:
        """Yield each bug with its trial, in the order given, whoever is ready first."""
        with ThreadPoolExecutor(len(self.benches)) as pool:
            ahead: list[tuple[Bug, Future[Trial] | Trial]] = []
            source = iter(bugs)
            try:
                while True:
                    while len(ahead) < len(self.benches) and (bug := next(source, None)) is not None:
                        known = self.journal.trials.get(bug.key)
                        ahead.append((bug, known if known is not None else pool.submit(self._try, bug)))
                    if not ahead:
                        return
                    bug, got = ahead.pop(0)
                    trial = got if isinstance(got, Trial) else got.result()
                    self.report.trials[trial.kind] += 1
                    self.report.run_seconds += trial.seconds
                    yield bug, trial
            finally:
                for _, got in ahead:
                    if isinstance(got, Future):
                        got.cancel()

    def _try(self, bug: Bug) -> Trial:
        bench = self.free.pop()
        try:
            trial = bench.trial(bug, self.base)
        finally:
            self.free.append(bench)
        with self.lock:
            self.journal.add(bug.key, trial)
        return trial


def _pairs(parts: list[tuple[Bug, Trial, str]]) -> Iterator[tuple[tuple[Bug, Trial, str], tuple[Bug, Trial, str]]]:
    """Yield pairs of bugs in different functions, each bug early with another partner."""
    for step in range(1, len(parts)):
        for i in range(len(parts) - step):
            (path, a), (other, b) = parts[i][0].sites[0], parts[i + step][0].sites[0]
            if (path, a.scope) != (other, b.scope):
                yield parts[i], parts[i + step]


def _still(examples: Sequence[Example], now: Sequence[Example]) -> list[Example]:
    """Return the examples of one part that are the same with both bugs."""
    there = {(e.call, e.setup, e.expected, e.actual) for e in now}
    return [e for e in examples if (e.call, e.setup, e.expected, e.actual) in there]


def difficulty(failing: int, bugs: int) -> str:
    """Return how hard a task is: one failing test shows least of the bug, six or more the most; a second bug makes it harder by one."""
    level = (0 if failing >= 6 else 1 if failing >= 2 else 2) + (bugs - 1)
    return ("easy", "medium", "hard")[min(level, 2)]


__all__ = ["Report", "build", "difficulty"]
