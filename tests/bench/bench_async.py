"""Wall-clock per update: asynchronous rollouts beside synchronous ones, at equal rollouts. `python tests/bench/bench_async.py [--out FILE.json]`

One warm start of the quick start (tasks/alfworld.yaml), then the same number of updates from it with the same episodes an update: synchronous
in one process, synchronous in two (each plays and differentiates half), and asynchronous in two (one plays, one learns). The three take turns,
`--repeat` times, so that all see the same machine; one thread a process, no evaluation in between. The first updates are left out, since the
second process has to start. What to expect: with games that answer at once, two synchronous processes have nothing to wait for, and keep both
cores busy; asynchronous, the slower side decides, and whatever is under way is read anew when the weights change. `--delay 0.2` gives each step
of the environment a random wait of that mean: there the synchronous ones wait for the slowest episode, with idle cores.

With `--updates 200 --repeat 1` it also says how training went: success, surprise (nll) and masked tokens in the first and the last tenth.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from _out import write

from agentgym.store import read_lines

ROOT = Path(__file__).resolve().parents[2]
TASK, RECIPES = ROOT / "tasks" / "alfworld.yaml", ROOT / "trainers" / "recipes"
# name → (run.workers, asynchronous)
WAYS = {"synchronous, 1 process": (1, False), "synchronous, 2 processes": (2, False), "asynchronous, 2 processes": (1, True)}
SKIP = 3  # updates at the beginning
SLOW = """
import random, time
from agentgym.envs.alfworld import alfworld

class slow(alfworld):
    def __init__(self, *, delay: float = 0.0, **options):
        super().__init__(**options)
        self.delay, self.blocking = delay, True

    def step(self, action):
        time.sleep(random.expovariate(1 / self.delay))
        return super().step(action)
"""


def train(folder: Path, *args: str) -> list[dict[str, Any]]:
    """Run `agentgym run` into a new folder and return its updates' metrics."""
    common = [f"run.dir={folder}", "run.threads=1", "run.minutes=0.0", "run.trajectories_every=0", "eval.every=0", "checkpoint.every=1000000"]
    command = [sys.executable, "-m", "agentgym.cli", "run", str(TASK), *args, *common]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return [r for r in read_lines(folder / "metrics.jsonl") if "update" in r]


def warm_start(folder: Path, updates: int) -> Path:
    """Return the folder of a model that was trained on demonstrations."""
    train(folder, "stages.rl=null", "run.workers=2", f"stages.warm.update.count={updates}", f"stages.warm.update.warmup={min(50, updates)}")
    return Path(json.loads((folder / "summary.json").read_text("utf-8"))["checkpoints"]["final"]) / "model"


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what one run says, its first updates left out: seconds by clock between the end of one update and the end of the next."""
    late = rows[SKIP - 1 :]
    seconds = [b["wall_s"] - a["wall_s"] for a, b in itertools.pairwise(late)]
    ages: dict[str, float] = defaultdict(float)
    for row in late[1:]:
        shares = {k.split("/")[1]: v for k, v in row.items() if re.fullmatch(r"staleness/\d+", k)} or {"0": 1.0}
        for age, share in shares.items():
            ages[age] += share / len(late[1:])
    mean = {k: statistics.mean(r.get(k) or 0.0 for r in late[1:]) for k in ("seconds/rollout", "seconds/update", "rollout/turns", "tokens")}
    return {
        "seconds an update": statistics.mean(seconds),
        "median": statistics.median(seconds),
        **mean,
        "staleness": {k: round(ages[k], 4) for k in sorted(ages, key=int)},
        "stale groups dropped": sum(r.get("rollout/stale_dropped", 0.0) for r in rows),
        "generators restarted": sum(r.get("rollout/restarts", 0.0) for r in rows),
        **{f"{k}, first and last tenth": tenths(rows, k) for k in ("rollout/success", "nll", "masked")},
    }


def tenths(rows: list[dict[str, Any]], key: str) -> list[float]:
    """Return the mean over the first and over the last tenth of the updates."""
    n = max(1, len(rows) // 10)
    values = [[r[key] for r in part if r.get(key) is not None] for part in (rows[:n], rows[-n:])]
    return [round(statistics.mean(v), 4) for v in values if v]


def slow(folder: Path, delay: float) -> list[str]:
    """Return the overrides that make the environment slow."""
    (folder / "slow.py").write_text(SLOW, "utf-8")
    return [f"env={{name: '{folder / 'slow.py'}:slow', delay: {delay}, data: null, size: mini, max_steps: 20, scale: 10.0, state: hash}}"]


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the medians over the repetitions, and the goal: to be of use, the second process must make an update faster than one alone."""
    seconds = {name: statistics.median(r["seconds an update"] for r in found) for name, found in runs.items()}
    alone, together, ahead = (seconds[n] for n in WAYS)
    result: dict[str, Any] = {"seconds an update": seconds, "times as fast as 1 process": alone / ahead, "as 2 processes": together / ahead}
    goal = {"what": "asynchronous update, times as fast as synchronous in 1 process", "value": f"{alone / ahead:.2f}", "goal": "> 1"}
    return result | {"runs": runs, "goals": [goal | {"met": alone > ahead}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--recipe", default="sao", help="which method (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=20, help="of each run; the first 3 are not timed (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=80, help="updates of the warm start (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="start from this model, instead of a warm start made for the occasion")
    parser.add_argument("--episodes", type=int, default=96, help="of an update (default: %(default)s)")
    parser.add_argument("--size", type=int, default=1, help="episodes of a task (default: %(default)s)")
    parser.add_argument("--staleness", type=int, default=4, help="rollout.max_staleness of the asynchronous runs (default: %(default)s)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a step of the environment takes on average (default: at once)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each way (default: %(default)s)")
    o = parser.parse_args()
    if o.updates < SKIP + 2:
        parser.error(f"--updates is {o.updates}; at least {SKIP + 2}, since the first {SKIP} are not timed")
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        model = o.model or warm_start(Path(folder) / "warm", o.warm)
        same = [f"model={model}", "stages.warm=null", f"update.count={o.updates}", "update.warmup=0", "update.decay=constant"]
        same += [f"rollout.tasks={o.episodes // o.size}", f"rollout.group_size={o.size}", f"rollout.concurrency={o.episodes}"]
        same += slow(Path(folder), o.delay) if o.delay else []
        for n in range(o.repeat):
            for i, (name, (workers, ahead)) in enumerate(WAYS.items()):
                way = [f"run.workers={workers}", f"rollout.max_staleness={o.staleness * ahead}", f"run.seed={n + 1}"]
                runs[name].append(figures(train(Path(folder) / f"{n}-{i}", str(RECIPES / f"{o.recipe}.yaml"), *same, *way)))
                print(f"{name}, run {n + 1}: {runs[name][-1]['seconds an update']:.2f} s an update", file=sys.stderr, flush=True)
    settings = {k: v for k, v in vars(o).items() if k not in ("out", "model")}
    write({"settings": settings} | summary(runs), o.out)


if __name__ == "__main__":
    main()
