"""Where the time of the quick start goes: rollout, reference, credit, update, weight push, evaluation, with each engine and number of processes.

    python tests/bench/bench_scale.py [--ray-python PATH] [--vllm-python PATH] [--model FOLDER] [--only WORD …] [--out FILE.json]

Each line is an `agentgym run` of its own: tasks/alfworld.yaml from one warm-started model (made first, or --model), four updates of 192 episodes with
a KL term, so that there is a reference, and the whole held-out panel before and after. Given are medians over the updates after the first, and the
evaluation after them, in seconds of the clock, since the work is in several processes; tokens a second are those that were written (rollout,
evaluation) or that the batch has (all else).
Lines that need Ray or vLLM run with the Python that has it, and are left out, with a word, where there is none. One thread a process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _out
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
TASK = str(ROOT / "tasks" / "alfworld.yaml")
UPDATES = 4
COMMON = [
    "stages.warm=null",
    f"update.count={UPDATES}",
    "update.warmup=0",
    "update.decay=constant",
    "eval.every=0",
    "objectives.kl={coefficient: 0.01}",
]
COMMON += ["run.workers=1", "run.threads=1", "run.minutes=0", "loggers={jsonl: {}}"]


@dataclass(frozen=True)
class Way:
    """A way to run the quick start: its name, what it needs, overrides, and processes that torchrun starts."""

    name: str
    layers: tuple[str, ...] = ()
    needs: str = ""
    ranks: int = 0


WAYS = [
    Way("hf"),
    Way("hf, shared prefixes off", ("update.shared_prefix=never",)),
    Way("hf, 2 processes on one model", ("run.workers=2",)),
    Way("hf, 2 ranks with half a model each (torchrun)", ("shard.ranks=2",), ranks=2),
    Way("hf, 1 engine in a child", ("cluster.engines.number=1",)),
    Way("hf, 2 engines in children", ("cluster.engines.number=2",)),
    Way("hf, 1 engine as a Ray actor", ("cluster=ray", "cluster.engines.number=1"), "ray"),
    Way("hf, 2 engines as Ray actors", ("cluster=ray", "cluster.engines.number=2"), "ray"),
    Way("vllm", ("policy=vllm",), "vllm"),
    Way("vllm, shared prefixes off", ("policy=vllm", "update.shared_prefix=never"), "vllm"),
    Way("vllm, environments in 2 children", ("policy=vllm", "cluster.envs.number=2"), "vllm"),
    Way("vllm, environments in 2 Ray actors", ("policy=vllm", "cluster=ray", "cluster.envs.number=2"), "vllm+ray"),
]
PHASES = {  # metric of its seconds, metric of its tokens
    "rollout": ("seconds/rollout", "rollout/written"),
    "reference": ("seconds/stream/ref_logp", "tokens"),
    "credit": ("seconds/learn/credit", "tokens"),
    "update": ("seconds/learn/policy", "tokens"),
    "push": ("seconds/publish", None),
    "evaluation": ("eval/seconds", "eval/written"),
}


def run(python: str, folder: Path, layers: list[str], ranks: int = 0) -> None:
    """Run a command to its end. Raises RuntimeError with the end of what it printed."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    command = [python, "-P", *start, "-m", "agentgym", "run", TASK, f"run.dir={folder}", *layers]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")


def phases(folder: Path) -> dict[str, Any]:
    """Return phase → [seconds, tokens a second] of a run, and its mean success as a check that all ways play alike."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    found: dict[str, Any] = {}
    for name, (seconds, tokens) in PHASES.items():
        of = [r for r in rows if r.get(seconds) is not None]
        of = of[1:]  # the first has the engine's start in it, or what is compiled once
        if not of:
            found[name] = [0.0, 0.0]
            continue
        rates = [r[tokens] / max(r[seconds], 1e-9) for r in of if tokens]
        found[name] = [statistics.median(r[seconds] for r in of), statistics.median(rates) if rates else 0.0]
    played = [r for r in rows if "rollout/success" in r]
    return found | {"success": statistics.mean(r["rollout/success"] for r in played), "updates": len(played)}


def has(python: str, modules: str) -> bool:
    check = "; ".join(f"import importlib.util as u; assert u.find_spec('{m}')" for m in modules.split("+"))
    return subprocess.run([python, "-P", "-c", check], capture_output=True).returncode == 0


def warmed(folder: Path) -> str:
    """Return the folder of a warm-started model."""
    run(sys.executable, folder, ["stages.rl=null", "stages.warm.update.count=40", "run.workers=2", "eval.tasks=20"])
    return str(sorted((folder / "checkpoints").glob("step-*/model"))[-1])


def shown(result: dict[str, Any]) -> Table:
    table = Table("way", *PHASES, "success", title="seconds an update (tokens a second)")
    for name, row in result.items():
        cells = [f"{row[p][0]:.2f}" + (f" ({row[p][1]:,.0f})" if row[p][1] else "") if row[p][0] else "-" for p in PHASES]
        table.add_row(name, *cells, f"{row['success']:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ray-python", default=sys.executable, help="a Python with the extra `ray`, if this one has it not")
    parser.add_argument("--vllm-python", default=sys.executable, help="a Python with vLLM (and Ray, for the last line)")
    parser.add_argument("--model", help="a model to begin with instead of warming one up (about two minutes)")
    parser.add_argument("--only", nargs="*", default=[""], help="lines whose name has one of these words")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        model = options.model or warmed(Path(place) / "warm")
        for i, way in enumerate(w for w in WAYS if any(word in w.name for word in options.only)):
            python = {"": sys.executable, "ray": options.ray_python}.get(way.needs, options.vllm_python)
            if way.needs and not has(python, way.needs):
                print(f"{way.name}: left out, {python} has no {way.needs}", file=sys.stderr)
                continue
            print(f"{way.name} …", file=sys.stderr, flush=True)
            folder = Path(place) / str(i)
            try:
                run(python, folder, [*COMMON, f"model={model}", *way.layers], way.ranks)
            except RuntimeError as e:
                print(f"{way.name}: failed, and is left out\n{e}", file=sys.stderr, flush=True)
                continue
            result[way.name] = phases(folder)
            print(json.dumps(result[way.name]), file=sys.stderr, flush=True)
    Console(width=180, stderr=True).print(shown(result))
    _out.write({"ways": result}, options.out)


if __name__ == "__main__":
    main()
