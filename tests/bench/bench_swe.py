"""SWE episodes: set-up, a command through the environment, the state's key, grading; beside a plain run of the same tests.

    python tests/bench/bench_swe.py [--backend docker bubblewrap] [--tasks 8] [--out FILE.json]

Wall-clock medians, since most of the work is done in other processes: an idle machine gives the best ones. The tasks are drawn from all packages of
the generated set. Each is played by the oracle (graded as resolved) and by one who repairs nothing (graded as failing). The comparison is what a
grader without any guard does: pytest once on the repaired tree with all tests, on this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _out

from agentgym.envs.swe.env import SWEEnv
from agentgym.envs.swe.packages import PACKAGES, unpack
from agentgym.envs.swe.sandbox import SandboxMissing


def timed(act: Callable[[], Any]) -> float:
    """Return the milliseconds of an action."""
    start = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - start)


def chosen(env: SWEEnv, n: int) -> list[str]:
    """Return n tasks, the packages in turn."""
    by: dict[str, list[str]] = {}
    for task in env.tasks():
        by.setdefault(task.rpartition("-")[0], []).append(task)
    turns = [tasks[i] for i in range(n) for tasks in by.values() if i < len(tasks)]
    return turns[:n]


def grading(env: SWEEnv, task: str, repair: bool) -> tuple[float, float, float, float]:
    """Play an episode; return milliseconds of reset, a command, a command that changes a file (with a new key), and the end with its grading."""
    reset = timed(lambda: env.reset(seed=0, options={"task": task}))
    look = timed(lambda: env.step(env.call_text("bash", command="ls")))
    change = timed(lambda: env.step(env.call_text("bash", command="echo note > note.txt")))
    moves, said = (env.demonstrate() if repair else iter([("submit", {})])), None
    while True:
        name, arguments = moves.send(said) if said is not None and hasattr(moves, "send") else next(moves)
        if name == "submit":
            break
        env.step(env.call_text(name, **arguments))
        said = "\n".join(env.results)
    end = timed(lambda: env.step(env.call_text("submit")))
    assert env.grade is not None and env.grade.resolved == repair, (task, env.grade)
    return reset, look, change, end


def plainly(env: SWEEnv, task: str) -> float:
    """Return the milliseconds of pytest on the sound package, with all its tests."""
    env.reset(seed=0, options={"task": task})
    package = PACKAGES[env.swe.repo]
    env.close()
    with tempfile.TemporaryDirectory() as folder:
        tree = unpack(package, Path(folder) / "tree")
        variables = {**os.environ, "PYTHONPATH": str(tree / package.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return timed(lambda: subprocess.run(package.test_command(sys.executable), cwd=tree, env=variables, capture_output=True, check=False))


def measure(name: str, n: int) -> dict[str, float]:
    """Return medians of one backend, in milliseconds, and how grading compares with a plain run of the tests."""
    env = SWEEnv(sandbox=name, split="test")  # type: ignore[arg-type]
    other = SWEEnv(sandbox=name, split="train")  # type: ignore[arg-type]
    plans = [(env, t) for t in chosen(env, n // 2)] + [(other, t) for t in chosen(other, n - n // 2)]
    grading(*plans[0], repair=True)  # what is made once is made now
    good = [grading(e, t, repair=True) for e, t in plans]
    bad = [grading(e, t, repair=False) for e, t in plans]
    plain = [plainly(e, t) for e, t in plans]
    median = statistics.median
    return {
        "reset": median(row[0] for row in good + bad),
        "a command": median(row[1] for row in good + bad),
        "a command that changes a file": median(row[2] for row in good + bad),
        "submit, resolved": median(row[3] for row in good),
        "submit, failing": median(row[3] for row in bad),
        "pytest alone, all tests": median(plain),
        "grading over pytest alone": median(row[3] / p for row, p in zip(good, plain, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", nargs="+", default=["docker", "bubblewrap"], choices=["docker", "bubblewrap", "none"])
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    for name in options.backend:
        try:
            result[name] = measure(name, options.tasks)
        except SandboxMissing as e:
            print(f"{name} is not measured: {e}")
            continue
        for what, value in result[name].items():
            unit = "times" if " over " in what else "ms"
            print(f"{name:<12} {what:<32} {value:>9.2f} {unit}", flush=True)
    if options.out:
        _out.write(result, options.out)


if __name__ == "__main__":
    main()
