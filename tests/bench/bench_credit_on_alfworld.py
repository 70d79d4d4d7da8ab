"""GiGPO beside GRPO on the quick-start task set: same warm-started model, same rollout budget, several seeds.

    python tests/bench/bench_credit_on_alfworld.py --out figures --seeds 3 --updates 40

Writes OUT/credit_on_alfworld.json and OUT/credit_on_alfworld.png, prints a table. Runs go two at a time, one thread each, so that wall times can
be compared. A run that is already there is not repeated: an interrupted benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentgym.plot import compare_curves
from agentgym.store import read, read_lines, write_atomic
from agentgym.types import Trajectory

ROOT = Path(__file__).resolve().parents[2]
TASK = ROOT / "tasks" / "alfworld.yaml"
RECIPES = ROOT / "trainers" / "recipes"
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}  # Student's t for n runs


def train(folder: Path, *args: str) -> dict[str, Any]:
    """Run `agentgym run` into `folder` unless it has been done; return its summary."""
    if not (folder / "summary.json").exists():
        done = (folder / "config.json").exists()
        command = ["resume", str(folder)] if done else ["run", str(TASK), *args, f"run.dir={folder}", "run.workers=1", "run.threads=1"]
        log = folder.with_suffix(".log").open("a")
        subprocess.run([sys.executable, "-m", "agentgym.cli", *command], check=True, stdout=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return dict(json.loads((folder / "summary.json").read_text()))


def interval(values: list[float]) -> tuple[float, float]:
    """Return mean and half of the 95 % interval over runs."""
    n, mean = len(values), sum(values) / len(values)
    if n < 2:
        return mean, math.nan
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, T95.get(n, 2.0) * sd / math.sqrt(n)


def diagnosis(folder: Path) -> dict[str, float]:
    """Return what there was to compare, over the stored updates: groups without spread, and how many steps met another in their state."""
    uniform, failed, groups, alone, steps = 0, 0, 0, 0, 0
    for path in sorted((folder / "trajectories").glob("rl-*.jsonl.gz")):
        by_group: dict[str, list[Trajectory]] = {}
        for t in read(path):
            by_group.setdefault(t.group, []).append(t)
        states = Counter((t.group, s.state) for g in by_group.values() for t in g for s in t.steps)
        alone += sum(n for n in states.values() if n == 1)
        steps += sum(states.values())
        uniform += sum(len({t.outcome for t in g}) == 1 for g in by_group.values())
        failed += sum(not any(t.success for t in g) for g in by_group.values())
        groups += len(by_group)
    return {"groups without spread": uniform / groups, "groups that all failed": failed / groups, "steps alone in their anchor state": alone / steps}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path("bench-credit"))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--updates", type=int, default=40)
    p.add_argument("--methods", nargs="+", default=["gigpo", "grpo"])
    p.add_argument("--parallel", type=int, default=2)
    a = p.parse_args()
    out = a.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    warm = train(out / "warm", "run.seed=0", "stages.rl=null")
    model = Path(warm["checkpoints"]["final"]) / "model"
    jobs = [(m, s) for s in range(1, a.seeds + 1) for m in a.methods]

    def one(job: tuple[str, int]) -> dict[str, Any]:
        method, seed = job
        recipe = str(RECIPES / f"{method}.yaml")
        options = [f"model={model}", "stages.warm=null", f"run.seed={seed}", f"update.count={a.updates}", "eval.every=10", "run.minutes=0.0"]
        return train(out / f"{method}-{seed}", recipe, *options)

    with ThreadPoolExecutor(a.parallel) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    runs = {m: [list(read_lines(out / f"{m}-{s}" / "metrics.jsonl")) for s in range(1, a.seeds + 1)] for m in a.methods}
    compare_curves(runs, out / "credit_on_alfworld.png", title=f"held-out success, {a.seeds} seeds, same warm start")
    table = {}
    print(f"{'method':<8} {'before':>8} {'after':>8} {'± 95 %':>8} {'per seed'}")
    for m in a.methods:
        final = [results[m, s]["eval"]["final"]["success"] for s in range(1, a.seeds + 1)]
        mean, half = interval(final)
        before = results[m, 1]["eval"]["before"]["success"]
        table[m] = {"before": before, "final": final, "mean": mean, "half_interval": half, "diagnosis": diagnosis(out / f"{m}-1")}
        print(f"{m:<8} {before:>8.1%} {mean:>8.1%} {half:>8.1%} {' '.join(f'{v:.1%}' for v in final)}  {table[m]['diagnosis']}")
    write_atomic(out / "credit_on_alfworld.json", json.dumps({"updates": a.updates, "seeds": a.seeds, "methods": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
