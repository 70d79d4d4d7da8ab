"""Credit on 5k, 20k and 200k step rows: every method beside a direct loop over rows, in the same run.

    python tests/bench/bench_credit.py [--out FILE.json]

CPU milliseconds of one thread, a minute in all. Each step reads and writes 8 tokens. A loop that would need more than a minute, by its time at
a smaller size, is left out: "-".
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentgym.registry import bind
from agentgym.trainers.call import call
from agentgym.trainers.similar import merge_similar

SIZES = (5_000, 20_000, 200_000)
TOKENS = 8
Columns = dict[str, Any]


def columns(rows: int, *, steps: int = 50, size: int = 8, states: int = 100, seed: int = 0) -> Columns:
    """Return random columns: episodes of `steps` steps, groups of `size`, `states` different states a group, sparse rewards."""
    rng = np.random.default_rng(seed)
    T = rows // steps
    group, step_traj, step_index = np.arange(T) // size, np.repeat(np.arange(T), steps), np.tile(np.arange(steps), T)
    outcome = rng.integers(0, 2, T).astype(np.float32) * 10
    reward = np.where(step_index == steps - 1, outcome[step_traj], 0)
    # few of the states are common, as in play: squaring prefers small numbers
    state = group[step_traj] * states + (rng.random(T * steps) ** 2 * states).astype(np.int64)
    out = {
        "outcome": outcome, "traj_group": group, "truncated": outcome == 0, "step_traj": step_traj, "step_index": step_index, "step_reward": reward,
        "step_return": (reward.reshape(T, steps)[:, -1:] * 0.95 ** np.arange(steps - 1, -1, -1)).ravel().astype(np.float32), "step_state": state,
        "step_penalty": -0.1 * (rng.random(T * steps) < 0.1).astype(np.float32), "step": np.repeat(np.arange(T * steps), 2 * TOKENS),
        "sampled": np.tile(np.arange(2 * TOKENS) >= TOKENS, T * steps),
        "value": rng.random(2 * TOKENS * T * steps).astype(np.float32), "next_value": rng.random(2 * TOKENS * T * steps).astype(np.float32),
    }  # fmt: skip
    return {n: torch.from_numpy(x) for n, x in out.items()}


# -- the formulas, row by row -----------------------------------------------------------------------------------------------------


def standard(values: list[float], ddof: int = 1) -> tuple[float, float]:
    """Return (mean, standard deviation); a single value has deviation 0."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / max(len(values) - ddof, 1))


def relative(values: list[float], keys: list[Any], ddof: int = 1, *, divide: bool = True) -> list[float]:
    """Return each value relative to those of the same key; 0 for one that is alone."""
    groups = defaultdict(list)
    for key, v in zip(keys, values, strict=True):
        groups[key].append(v)
    stats = {key: (*standard(v, ddof), len(v)) for key, v in groups.items()}
    out = []
    for key, v in zip(keys, values, strict=True):
        mean, std, n = stats[key]
        out.append((v - mean) / (std + 1e-6 if divide else 1) if n > 1 else 0.0)
    return out


def by_group(c: Columns, *, divide: bool = True) -> list[float]:
    a = relative(c["outcome"].tolist(), c["traj_group"].tolist(), divide=divide)
    return [a[t] for t in c["step_traj"].tolist()]


def rloo_loop(c: Columns) -> list[float]:
    groups = defaultdict(list)
    for g, r in zip(c["traj_group"].tolist(), c["outcome"].tolist(), strict=True):
        groups[g].append(r)
    a = [r - (sum(groups[g]) - r) / (len(groups[g]) - 1) for g, r in zip(c["traj_group"].tolist(), c["outcome"].tolist(), strict=True)]
    return [a[t] for t in c["step_traj"].tolist()]


def gigpo_loop(c: Columns) -> list[float]:
    traj, outcome, group = c["step_traj"].tolist(), c["outcome"].tolist(), c["traj_group"].tolist()
    episode = relative([outcome[t] for t in traj], [group[t] for t in traj])
    step = relative(c["step_return"].tolist(), c["step_state"].tolist())
    return [e + s + p for e, s, p in zip(episode, step, c["step_penalty"].tolist(), strict=True)]


def hgpo_loop(c: Columns, history: int = 2) -> list[float]:
    state, index, returns = c["step_state"].tolist(), c["step_index"].tolist(), c["step_return"].tolist()
    levels = []
    for k in range(1, history + 2):
        keys = [tuple(state[i - k + 1 : i + 1]) if index[i] >= k - 1 else (i,) * (k + 1) for i in range(len(state))]
        levels.append(relative(returns, keys, 0))
    out = []
    for i in range(len(state)):
        said = [(k + 2, a[i]) for k, a in enumerate(levels) if abs(a[i]) > 1e-6]
        out.append(sum(w * a for w, a in said) / (sum(w for w, _ in said) + 1e-6))
    return out


def pgpo_loop(c: Columns) -> list[float]:
    traj, state, returns = c["step_traj"].tolist(), c["step_state"].tolist(), c["step_return"].tolist()
    outcome, group, cut = c["outcome"].tolist(), c["traj_group"].tolist(), c["truncated"].tolist()
    visits, won = defaultdict(list), defaultdict(list)
    for s, r in zip(state, returns, strict=True):
        visits[s].append(r)
    for g, r in zip(group, outcome, strict=True):
        won[g].append(r > 0)
    phi = {s: sum(v) / len(v) for s, v in visits.items()}
    delta = []
    for i, t in enumerate(traj):
        inside = i + 1 < len(traj) and traj[i + 1] == t
        delta.append((phi[state[i + 1]] if inside else 0.0 if cut[t] else outcome[t]) - phi[state[i]])
    weight = {g: (1 - sum(v) / len(v)) ** 2 for g, v in won.items()}
    return [s + weight[group[t]] * d for t, s, d in zip(traj, relative(returns, state), relative(delta, state), strict=True)]


def backwards(c: Columns, lam: Callable[[int], float], *, value: bool) -> list[float]:
    """Return A of each token, from the last to the first, V and A carried through those that were read."""
    traj, step, sampled = c["step_traj"].tolist(), c["step"].tolist(), c["sampled"].tolist()
    v, after, cut = c["value"].tolist(), c["next_value"].tolist(), c["truncated"].tolist()
    reward = (c["step_reward"] + c["step_penalty"]).tolist()
    wrote = defaultdict(int)
    for n, s in enumerate(step):
        wrote[traj[s]] += sampled[n]
    out, now, at = [0.0] * len(step), -1, -1
    for n in range(len(step) - 1, -1, -1):
        if not sampled[n]:
            continue
        s, r = step[n], 0.0
        if s != at:  # the last token of its step
            at, r = s, reward[s]
        if traj[s] != now:
            now, running, following = traj[s], 0.0, after[n] if cut[traj[s]] else 0.0
        if value:
            running, following = r + following - v[n] + lam(wrote[now]) * running, v[n]
        else:
            running = r + running
        out[n] = running
    return out


def whiten_loop(a: list[float], c: Columns) -> list[float]:
    sampled = c["sampled"].tolist()
    mean, std = standard([x for x, s in zip(a, sampled, strict=True) if s])
    return [(x - mean) / std if s else 0.0 for x, s in zip(a, sampled, strict=True)]


def step_gae_loop(c: Columns) -> list[float]:
    traj, v, reward = c["step_traj"].tolist(), c["value"][TOKENS :: 2 * TOKENS].tolist(), c["step_reward"].tolist()
    out = [0.0] * len(traj)
    for i in range(len(traj) - 1, -1, -1):
        inside = i + 1 < len(traj) and traj[i + 1] == traj[i]
        out[i] = reward[i] + (0.99 * v[i + 1] if inside else 0.0) - v[i] + (0.99 * 0.95 * out[i + 1] if inside else 0.0)
    out = [a + p for a, p in zip(out, c["step_penalty"].tolist(), strict=True)]
    mean, std = standard(out)
    return [(a - mean) / std for a in out]


def baseline_loop(c: Columns) -> list[float]:
    a, sampled = by_group(c, divide=False), c["sampled"].tolist()
    return whiten_loop([a[s] if wrote else 0.0 for s, wrote in zip(c["step"].tolist(), sampled, strict=True)], c)


LOOPS: dict[str, Callable[[Columns], list[float]]] = {
    "grpo": by_group,
    "rloo": rloo_loop,
    "gigpo": gigpo_loop,
    "hgpo": hgpo_loop,
    "pgpo": pgpo_loop,
    "dr_grpo": partial(by_group, divide=False),
    "step_gae": step_gae_loop,
    "gae": lambda c: whiten_loop(backwards(c, lambda n: 1.0, value=True), c),
    "skip_gae": lambda c: backwards(c, lambda n: 1 - 1 / (1.5 * n), value=True),
    "reinforce_pp": lambda c: whiten_loop(backwards(c, lambda n: 1.0, value=False), c),
    "reinforce_pp_baseline": baseline_loop,
}


# -- states that are nearly the same ----------------------------------------------------------------------------------------------


def observations(rows: int, *, group: int = 400, seed: int = 0) -> Columns:
    """Return rows in groups of `group`, each with a household of its own, described in the words of ALFWorld."""
    rng, state, of, text = random.Random(seed), [], [], {}
    things = "apple bowl bread cup egg fork knife lettuce mug pan plate potato spoon tomato".split()
    for i in range(rows):
        g = i // group
        if i % group == 0:
            places = [f"{p} {n}" for p in ("cabinet", "drawer", "shelf", "countertop") for n in range(1, 9)]
            lying = {p: [f"a {rng.choice(things)} {rng.randint(1, 3)}" for _ in range(rng.randint(0, 4))] for p in places}
        place = rng.choice(places)
        if lying[place] and rng.random() < 0.05:
            lying[place].pop()
        seen = ", and ".join(lying[place]) or "nothing"
        own = (g, rng.choice([f"You arrive at {place}. On the {place}, you see {seen}.", f"You are facing the {place}. Next to it, you see {seen}."]))
        state.append(text.setdefault(own, len(text)))
        of.append(g)
    return {"step_state": torch.tensor(state), "group": torch.tensor(of), "text": [t for _, t in text]}


def similar_loop(c: Columns, threshold: float) -> list[int]:
    """Return the cluster of each row, every row compared with every cluster of its group."""
    clusters, out = defaultdict(list), []
    for s, g in zip(c["step_state"].tolist(), c["group"].tolist(), strict=True):
        like = (f for f in clusters[g] if SequenceMatcher(None, c["text"][s], c["text"][f]).ratio() >= threshold)
        if (first := next(like, None)) is None:
            clusters[g].append(first := s)
        out.append(first)
    return out


# -- the table --------------------------------------------------------------------------------------------------------------------


def milliseconds(f: Callable[[], object], n: int) -> float:
    """Return CPU milliseconds per call, the first of several not counted."""
    for _ in range(n > 1):
        f()
    start = time.process_time()
    for _ in range(n):
        f()
    return (time.process_time() - start) / n * 1e3


def ours(name: str, c: Columns) -> torch.Tensor:
    return found[0] if isinstance(found := call(bind("credit", name), c), tuple) else found


def loop(name: str, f: Callable[[], Any], sizes: dict[int, float], rows: int) -> tuple[Any, float | None]:
    """Return what the loop gave and its CPU ms, or nothing when the last size says that it would take more than a minute."""
    if sizes and max(sizes.values()) / max(sizes) * rows > 60_000:
        return None, None
    start = time.process_time()
    found = f()
    return found, (time.process_time() - start) * 1e3


def measure(rows: int, slow: dict[str, dict[int, float]]) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return method → CPU ms of ours and of the loop; what the two give is compared."""
    fast: dict[str, float] = {}
    loops: dict[str, float | None] = {}
    c = columns(rows)
    for name, f in LOOPS.items():
        fast[name] = milliseconds(partial(ours, name, c), 10 if rows < 1e5 else 3)
        found, loops[name] = loop(name, partial(f, c), slow[name], rows)
        if found is not None:
            difference = float((torch.tensor(found) - ours(name, c)).abs().max())
            assert difference < 2e-3, f"{name}: ours and the loop differ by {difference}"
    o = observations(rows)
    merged = partial(merge_similar, o["step_state"], o["group"], o["text"], 0.9)
    fast["similarity"] = milliseconds(merged, 1)
    found, loops["similarity"] = loop("similarity", partial(similar_loop, o, 0.9), slow["similarity"], rows)
    assert found is None or found == merged().tolist(), "similarity: the clusters differ"
    for name, ms in loops.items():
        if ms is not None:
            slow[name][rows] = ms
    return fast, loops


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, help="write the figures there, as JSON")
    out = p.parse_args().out
    torch.set_num_threads(1)
    names, report = [*LOOPS, "similarity"], {}
    slow: dict[str, dict[int, float]] = {n: {} for n in names}
    print("    rows " + " ".join(f"{n:>{max(len(n), 8)}}" for n in names) + "   CPU ms, one thread")
    for rows in SIZES:
        fast, loops = measure(rows, slow)
        print(f"{rows:>8} " + " ".join(f"{fast[n]:>{max(len(n), 8)}.2f}" for n in names), flush=True)
        cells = ["-" if (ms := loops[n]) is None else f"{ms:.0f}" for n in names]
        print(" by loop " + " ".join(f"{x:>{max(len(n), 8)}}" for n, x in zip(names, cells, strict=True)), flush=True)
        report[rows] = {n: {"ms": fast[n], "loop_ms": loops[n]} for n in names}
    if out:
        wanted = ((20_000, "gigpo", 50), (200_000, "gigpo", 500), (200_000, "pgpo", 500))
        goals = [
            {
                "what": f"{n} credit, {r:,} step rows, ms",
                "value": f"{report[r][n]['ms']:.1f}",
                "goal": f"<= {most}",
                "met": report[r][n]["ms"] <= most,
            }
            for r, n, most in wanted
        ]
        out.write_text(json.dumps({"rows": report, "goals": goals}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
