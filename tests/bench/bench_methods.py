"""Every method of the trainer on the quick-start task set: same warm-started model, same number of episodes to learn from, several seeds.

    python tests/bench/bench_methods.py --out bench-methods --seeds 5
    python tests/bench/bench_methods.py --out bench-methods --methods grpo gigpo --seeds 2 --updates 10

Writes OUT/methods.json, OUT/methods.png and OUT/methods.md (the table). Runs go two at a time, one process and one thread each. A run that is
already there is not repeated, so an interrupted benchmark goes on, and one with more methods or seeds adds to what there is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentgym.plot import compare_curves, mean_interval
from agentgym.store import read_lines, write_atomic

ROOT = Path(__file__).resolve().parents[2]
TASK = ROOT / "tasks" / "alfworld.yaml"
RECIPES = ROOT / "trainers" / "recipes"
METHODS = ("grpo", "rloo", "gigpo", "hgpo", "pgpo", "stepopsd", "ppo", "sao", "sapo", "pivotrl")
ALONE = {"sao", "sapo"}  # one rollout per prompt
GROUPS, SIZE = 12, 8  # episodes of an update: 12 tasks x 8, or 96 tasks x 1
PIVOTS = (
    42  # x 8 single turns, a quarter of the turns of 96 episodes: what is left once the pivots are found (8 turns for each decision of 500 episodes)
)
# What to look at, by metric: means over the updates.
DIAGNOSES = {
    "no spread": ("rollout/spread", lambda x: 1 - x),
    "all failed": ("credit/all_failed", None),
    "steps alone": ("credit/singletons", None),
    "steps with A = 0": ("credit/zero", None),
    "spread in failures": ("credit/failed_spread", None),
    "explained variance": ("critic/explained_variance", None),
    "masked": ("masked", None),
}


def cli(log: Path, *args: str) -> None:
    """Run `agentgym …` with its output appended to `log`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("a") as f:
        subprocess.run([sys.executable, "-m", "agentgym.cli", *args], check=True, stdout=f, stderr=f, env=environment)


def train(folder: Path, *args: str) -> dict[str, Any]:
    """Run `agentgym run` into `folder` unless it has been done; return its summary."""
    if not (folder / "summary.json").exists():
        begun = (folder / "config.json").exists()
        command = ["resume", str(folder)] if begun else ["run", str(TASK), *args, f"run.dir={folder}", "run.workers=1", "run.threads=1"]
        cli(folder.with_suffix(".log"), *command)
    return dict(json.loads((folder / "summary.json").read_text()))


def pivots(out: Path, model: Path) -> tuple[Path, float]:
    """Profile the decisions of expert episodes with the warm model once; return the data set and the seconds that it took."""
    file, clock = out / "pivots.jsonl", out / "pivots.seconds"
    if not clock.exists():
        start = time.perf_counter()
        share = ["--trajectories", "expert", "--tasks", "500", "--policy", str(model), "--group", str(SIZE), "--out", str(file)]
        cli(out / "pivots.log", "pivots", str(TASK), str(RECIPES / "pivotrl.yaml"), *share, "run.workers=1", "run.threads=1")
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return file, float(clock.read_text())


def options(method: str, out: Path, model: Path) -> list[str]:
    """Return the overrides that give a method its share: equal numbers of episodes."""
    if method in ALONE:
        return [f"rollout.tasks={GROUPS * SIZE}", "rollout.group_size=1", "rollout.max_staleness=0"]
    if method == "pivotrl":
        return [f"rollout.tasks={PIVOTS}", f"rollout.group_size={SIZE}", f"sampler.file={pivots(out, model)[0]}"]
    return [f"rollout.tasks={GROUPS}", f"rollout.group_size={SIZE}"]


def diagnosis(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return means over the updates of what tells why a method did what it did; what a method does not log is left out."""
    out = {}
    for label, (name, f) in DIAGNOSES.items():
        found = [r[name] for r in rows if r.get(name) is not None]
        if found:
            mean = sum(found) / len(found)
            out[label] = f(mean) if f else mean
    out["turns of an update"] = sum(r.get("rollout/turns", 0.0) for r in rows) / max(1, sum("rollout/turns" in r for r in rows))
    return out


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    columns = ["turns of an update", *DIAGNOSES]
    lines = ["| method | held-out success after, per seed | mean ± 95 % | minutes | " + " | ".join(columns) + " |", "|---" * (4 + len(columns)) + "|"]
    for method, r in results.items():
        seeds = ", ".join(f"{x:.1%}" for x in r["final"])
        cells = [f"{r['diagnosis'][c]:.{0 if c == columns[0] else 2}f}" if c in r["diagnosis"] else "–" for c in columns]
        lines.append(f"| {method} | {seeds} | {r['mean']:.1%} ± {100 * r['half_interval']:.1f} | {r['minutes']:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path("bench-methods"))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--updates", type=int, default=30)
    p.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    p.add_argument("--parallel", type=int, default=2)
    a = p.parse_args()
    out = a.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    warm = train(out / "warm", "run.seed=0", "stages.rl=null")
    model = Path(warm["checkpoints"]["final"]) / "model"
    jobs = [(m, s) for s in range(1, a.seeds + 1) for m in a.methods]
    share = {m: options(m, out, model) for m in a.methods}
    begun = time.perf_counter()

    def one(job: tuple[int, tuple[str, int]]) -> dict[str, Any]:
        n, (method, seed) = job
        same = [f"model={model}", "stages.warm=null", f"run.seed={seed}", f"update.count={a.updates}", "update.minibatches=2", "run.minutes=0.0"]
        result = train(out / f"{method}-{seed}", str(RECIPES / f"{method}.yaml"), *same, "eval.every=10", "eval.tasks=100", *share[method])
        print(
            f"[{n + 1}/{len(jobs)}] {method} seed {seed}: {result['eval']['final']['success']:.1%}, {time.perf_counter() - begun:.0f} s", flush=True
        )
        return result

    with ThreadPoolExecutor(a.parallel) as pool:
        results = dict(zip(jobs, pool.map(one, enumerate(jobs)), strict=True))
    runs = {m: [list(read_lines(out / f"{m}-{s}" / "metrics.jsonl")) for s in range(1, a.seeds + 1)] for m in a.methods}
    found: dict[str, dict[str, Any]] = {}
    for m in a.methods:
        final = [results[m, s]["eval"]["final"]["success"] for s in range(1, a.seeds + 1)]
        mean, half = mean_interval(final)
        minutes = sum(results[m, s]["wall_s"] for s in range(1, a.seeds + 1)) / a.seeds / 60
        found[m] = {"final": final, "mean": mean, "half_interval": half, "minutes": minutes, "diagnosis": diagnosis([r for x in runs[m] for r in x])}
    title = f"held-out success of 200 households, {a.seeds} seeds, one warm start"
    compare_curves(runs, out / "methods.png", title=title, reference="grpo" if "grpo" in runs else "")
    before = {s: results[a.methods[0], s]["eval"]["before"]["success"] for s in range(1, a.seeds + 1)}
    extra = {"pivots_seconds": pivots(out, model)[1]} if "pivotrl" in a.methods else {}
    text = {"updates": a.updates, "seeds": a.seeds, "before": before, **extra, "methods": found}
    write_atomic(out / "methods.json", json.dumps(text, indent=1) + "\n")
    write_atomic(out / "methods.md", table(found) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
