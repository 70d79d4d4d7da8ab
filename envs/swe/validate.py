"""Is a set of tasks valid? A task's own fix has to be graded as resolved, and a change that repairs nothing as failing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentgym.errors import AgentGymError, ConfigError
from agentgym.progress import shown

from . import loaders, repo
from .changes import Changes, changes, listed, listed_inside
from .grade import Grader
from .grade_bench import python_of, unsupported
from .sandbox import Backend, Limits, backend
from .task import SweTask

_NOTHING = Changes({"agentgym-nothing.txt": b"This repairs nothing.\n"})


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a task, "" where nothing is. broken: its sandbox failed, so nothing is known of it."""

    task: str
    wrong: str = ""
    broken: bool = False


def validate(
    tasks: Iterable[SweTask], backend: Backend, *, limits: Limits = Limits(), seconds: float | None = None, workers: int = 1,
    advance: Callable[[int], None] = lambda n: None,
) -> Iterator[Verdict]:  # fmt: skip
    """Yield a verdict for each task, in their order.

    seconds  of processor time for one run of tests; see Grader
    workers  tasks at a time
    advance  is called with 1 for each task that is done
    """

    def one(task: SweTask) -> Verdict:
        try:
            verdict = Verdict(task.id, wrong(task, backend, limits, seconds))
        except (AgentGymError, OSError) as e:
            verdict = Verdict(task.id, str(e), broken=True)
        advance(1)
        return verdict

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(one, tasks)


def wrong(task: SweTask, backend: Backend, limits: Limits = Limits(), seconds: float | None = None) -> str:
    """Return what is wrong with a task, "" where nothing is. Raises EnvError, DataError."""
    if reason := unsupported(task):
        return reason
    grader = Grader(backend, limits, seconds=seconds)
    before = grader.grade(task, _NOTHING)
    if before.resolved or before.cause not in ("failing", "test_crash"):
        return f"without the fix it is {before.cause}: {'; '.join(before.failures[:2]) or 'all its tests pass'}"
    fix = own_fix(task, backend, limits)
    if not fix.files:
        return f"nothing of its fix is graded: {'; '.join(f'{p}: {why}' for p, why in fix.dropped.items())}"
    after = grader.grade(task, fix)
    return "" if after.resolved else f"with its own fix it is {after.cause}: {'; '.join(after.failures[:2])}"


def own_fix(task: SweTask, backend: Backend, limits: Limits = Limits()) -> Changes:
    """Return the changes of an agent that makes the task's own fix."""
    box = repo.open_for_agent(task, backend, limits)
    try:
        python, root = python_of(box), box.tree
        start = listed_inside(box, python, root) if task.image else listed(repo.agent_tree(task))
        repo.apply(task.patch, repo.BoxPlace(box))
        return changes(box, start, listed_inside(box, python, root), task)
    finally:
        box.close()


def main(tasks: str, split: str | None, sandbox: str, workers: int, limit: int | None) -> int:
    """Validate the tasks of a file and list the invalid ones; return the exit status: 0 where there are none. Raises DataError, ConfigError."""
    if workers < 1:
        raise ConfigError(f"--workers is {workers}; it is at least 1")
    damaged: list[str] = []
    found = loaders.load(tasks, split=split, limit=limit, damaged=damaged)
    for line in damaged:
        print(f"no task   {line}")
    bad = list[Verdict]()
    with shown("checking tasks", len(found), True) as advance:
        for verdict in validate(found, backend(sandbox), workers=workers, advance=advance):  # type: ignore[arg-type]
            if verdict.wrong:
                print(f"{'no answer' if verdict.broken else 'invalid':<9} {verdict.task}: {verdict.wrong}", flush=True)
                bad.append(verdict)
    broken = sum(v.broken for v in bad)
    valid = len(found) - len(bad)
    print(f"{valid} of {len(found) + len(damaged)} tasks are valid; {len(bad) - broken} invalid, {len(damaged)} damaged, {broken} without an answer")
    return 0 if valid == len(found) + len(damaged) else 1
