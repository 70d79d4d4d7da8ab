"""The text shop: steps per CPU second, start-up, memory of the 1st and the 100th environment.

    python tests/bench/bench_webshop.py [--data FOLDER] [--products 1000 100000] [--out FILE.json]

`--data` is a folder with the official small set (default: $WEBSHOP_DATA, where that is set); `--products` are sizes of generated catalogues. Each
figure is from a process of its own: the build (products, catalogue and index, in an empty cache), the start from what was built, the steps. A walk
is played once by a random shopper that searches, reads, chooses and buys; its actions are then replayed on an environment whose caches are empty.

It stands beside the way that the original takes, in the same run: render the page as HTML with a template, parse it, take the text out of it; here
with our own (cached) template and Python's html.parser. The original itself needs Java: published are 19 steps per CPU second on the small set
and 16 on 100,000 products (2.10 GHz Xeon; its templates are compiled at each call, and BeautifulSoup parses twice).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from _out import write

PUBLISHED = {"official 1,000": 19, "generated 100,000": 16}
STEPS = 4000


class Texts(HTMLParser):
    """Collects what is visible, as the original does with its pages."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in ("style", "script", "title")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script", "title")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.found.append(data.strip())


def make(options: dict[str, Any]) -> Any:
    from agentgym.envs.webshop.env import WebShopEnv

    return WebShopEnv(**options, split="all", feedback=False, max_steps=None)


def walk(env: Any, seed: int, steps: int) -> list[tuple[str, list[str]]]:
    """Play at random; return (task, actions) of each episode."""
    rng, tasks, played, done = random.Random(seed), env.tasks(), [], 0
    while done < steps:
        task = rng.choice(tasks)
        _, info = env.reset(options={"task": task})
        words = info["goal"].split(", and price")[0].split()
        actions: list[str] = []
        for _ in range(12):
            names = [n for n in info["available_actions"]["clickables"] if n != "search"]
            buy = [n for n in names if n == "buy now"] if rng.random() < 0.2 else []
            some = rng.sample(words, min(len(words), rng.randint(3, 9)))
            actions.append(f"click[{rng.choice(buy or names)}]" if names and rng.random() < 0.8 else f"search[{' '.join(some)}]")
            _, _, over, _, info = env.step(actions[-1])
            if over:
                break
        played.append((task, actions))
        done += len(actions) + 1
    return played


def replay(env: Any, played: list[tuple[str, list[str]]], look: Any = None) -> dict[str, float]:
    """Return CPU microseconds a step, by kind of step (resets count as one), and over all."""
    kinds: dict[str, list[float]] = {"reset": [], "search": [], "click": [], "buy": []}
    for task, actions in played:
        for action in ["", *actions]:
            start = time.process_time_ns()
            if action:
                env.step(action)
            else:
                env.reset(options={"task": task})
            if look is not None:
                look(env)
            kind = "reset" if not action else "search" if action.startswith("search") else "buy" if action == "click[buy now]" else "click"
            kinds[kind].append((time.process_time_ns() - start) / 1000)
    every = [t for times in kinds.values() for t in times]
    return {k: statistics.median(v) for k, v in kinds.items() if v} | {"mean": statistics.fmean(every), "steps": len(every)}


def speed(options: dict[str, Any]) -> dict[str, Any]:
    """Return microseconds of text steps and of the way over HTML, on environments whose caches are empty."""
    from agentgym.envs.webshop import env as module
    from agentgym.envs.webshop.html import page_html

    played = walk(make(options), 0, STEPS)

    def over_html(env: Any) -> None:
        parser = Texts()
        parser.feed(page_html(env._here.page, "0"))
        assert " [SEP] ".join(parser.found)

    def fresh(**more: Any) -> Any:
        for cached in (module._shop, module._goal_sets, module._tasks):
            cached.cache_clear()
        made = make(options | more)
        made._catalogue.product.cache_clear()
        return made

    text = [replay(fresh(), played) for _ in range(3)]
    html = replay(fresh(observation="url"), played, over_html)
    ours = sorted(text, key=lambda t: t["mean"])[1]
    return {
        "us": {k: round(v, 1) for k, v in ours.items()},
        "steps per CPU s": round(1e6 / ours["mean"]),
        "over HTML, steps per CPU s": round(1e6 / html["mean"]),
        "times the way over HTML": round(html["mean"] / ours["mean"], 2),
    }


def private_mb() -> float:
    text = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) / 1024


def build(options: dict[str, Any]) -> dict[str, Any]:
    """Return what making the catalogue costs, in an empty cache."""
    cpu, wall, before = time.process_time(), time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    env = make(options)
    size = sum(f.stat().st_size for f in env._catalogue.folder.rglob("*") if f.is_file())
    return {
        "CPU s": round(time.process_time() - cpu, 2),
        "wall s": round(time.perf_counter() - wall, 2),
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "MB before": round(before / 1024),
        "on disk MB": round(size / 1e6, 1),
        "goals": len(env.task_set),
    }


def start(options: dict[str, Any]) -> dict[str, Any]:
    """Return seconds until the first observation, and megabytes of the first and of each further environment, each in an episode."""
    begin, cpu = time.perf_counter(), time.process_time()
    import agentgym.envs.webshop.env

    del agentgym
    imported, before = time.perf_counter(), private_mb()
    env = make(options)
    env.reset(seed=0)
    ready = time.perf_counter()
    env.step("search[a long word]")
    one = private_mb()
    others = []
    for i in range(99):
        others.append(make(options))
        others[-1].reset(seed=i)
        others[-1].step(f"search[word number {i}]")
    return {
        "import s": round(imported - begin, 3),
        "make and reset s": round(ready - imported, 3),
        "CPU s": round(time.process_time() - cpu, 3),
        "first MB": round(one - before, 1),
        "each further MB": round((private_mb() - one) / 99, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("WEBSHOP_DATA"))
    parser.add_argument("--products", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps({"build": build, "speed": speed, "start": start}[args.one[0]](json.loads(args.one[1]))))
        return
    which: dict[str, dict[str, Any]] = {"official 1,000": {"data": args.data, "products": 1000}} if args.data else {}
    which |= {f"generated {n:,}": {"products": n} for n in args.products}
    result: dict[str, Any] = {}
    for name, options in which.items():
        found = {}
        with tempfile.TemporaryDirectory() as cache:
            for what in ("build", "start", "speed"):
                command = [sys.executable, __file__, "--one", what, json.dumps(options)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "AGENTGYM_CACHE": cache})
                found[what] = json.loads(done.stdout.splitlines()[-1])
        if name in PUBLISHED:
            found["times the original, published"] = round(found["speed"]["steps per CPU s"] / PUBLISHED[name])
        result[name] = found
        print(name, json.dumps(found), file=sys.stderr)
    result["goals"] = [g for name, found in result.items() for g in goals(name, found)]
    write(result, args.out)


def goals(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the figures say about issue 5's goals."""
    speed, first, more = found["speed"]["steps per CPU s"], found["start"]["make and reset s"], found["start"]["each further MB"]
    rows = [
        (f"start-up from the built catalogue, {name}, s", first, "< 1", first < 1),
        (f"each further environment, {name}, MB", more, "< 2", more < 2),
    ]
    if name.endswith(" 1,000"):
        rows.insert(0, (f"text steps per CPU s, {name}", speed, ">= 5,000", speed >= 5000))
    return [{"what": what, "value": f"{value:,}", "goal": goal, "met": met} for what, value, goal, met in rows]


if __name__ == "__main__":
    main()
