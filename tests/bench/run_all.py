"""Run the benchmarks one after the other, print their goals in one table, and write one JSON.

    python tests/bench/run_all.py [NAME …] [--out FILE.json]

Takes about 15 minutes of one core. A benchmark whose needs are not there (TRL, the real engine, data) says so and does not stop the others.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
# name → whether it writes JSON (`--out`); the others are read from what they print
BENCHES = {
    "alfworld": True,
    "rollout": False,
    "loop": True,
    "prefix": True,
    "credit": False,
    "search": True,
    "teachers": True,
    "update_vs_trl": True,
    "webshop": True,
    "sandbox": True,
    "swe": True,
}
Goal = dict[str, Any]  # what, value, goal, met


def run(name: str, python: str) -> dict[str, Any]:
    """Run one benchmark in a process of its own; return its figures, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [python, str(HERE / f"bench_{name}.py"), *(["--out", str(out)] if BENCHES[name] else [])]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cost = {"CPU s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall s": time.perf_counter() - start}
        if done.returncode:
            return {"error": (done.stderr or done.stdout).strip().splitlines()[-1:], **cost}
        return {"result": json.loads(out.read_text("utf-8")) if out.exists() else done.stdout.splitlines(), **cost}


def goals(name: str, result: Any) -> list[Goal]:
    """Return what a benchmark's figures say about the goals."""
    if name == "alfworld":
        faster = result.get("times faster than real, published")
        if faster is None:
            return [{"what": "engine step and reset, times the real one's", "value": result.get("real", "-"), "goal": ">= 5,000", "met": None}]
        return [at_least(f"engine {k}, times the real one's", faster[k], 5000) for k in ("step", "reset")]
    if name == "rollout":
        found = (re.match(r"(\S+) +generate.* ratio (\S+)", line) for line in result)
        return [at_least(f"rollout with cache, times re-prefilling, {m[1]}", float(m[2]), 4) for m in found if m]
    if name == "credit":
        row = next(line.split() for line in result if line.split()[0] == "20000")
        value = float(row[3])
        return [{"what": "GiGPO credit, 20k step rows, ms", "value": f"{value:.1f}", "goal": "<= 50", "met": value <= 50}]
    return list(result.get("goals", []))


def at_least(what: str, value: float, least: float) -> Goal:
    return {"what": what, "value": f"{value:,.1f}", "goal": f">= {least:,.0f}", "met": value >= least}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(BENCHES)}")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where to write the figures (default: %(default)s)")
    parser.add_argument("--alfworld-python", default=sys.executable, help="a Python that has the extra `alfworld`, if this one has not")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHES):
        parser.error(f"there is no benchmark {min(unknown)!r}; known: {', '.join(BENCHES)}")
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "benchmarks": {},
    }
    table = Table("benchmark", "what", "measured", "goal", "met", title="agentgym benchmarks")
    for name in options.names or BENCHES:
        print(f"{name} …", file=sys.stderr, flush=True)
        found = report["benchmarks"][name] = run(name, options.alfworld_python if name == "alfworld" else sys.executable)
        if "error" in found:
            table.add_row(name, *found["error"], "-", "-", "failed")
            continue
        found["goals"] = goals(name, found["result"])
        for g in found["goals"]:
            table.add_row(name, g["what"], str(g["value"]), g["goal"], {True: "yes", False: "no", None: "-"}[g["met"]])
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    Console(width=120).print(table)
    print(f"figures: {options.out}")


if __name__ == "__main__":
    main()
