"""Credit on 5k, 20k and 200k step rows: ours against a direct row-by-row transcription. Run: python tests/bench/bench_credit.py"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from agentgym.registry import bind
from agentgym.trainers.call import call

COLUMNS = ("outcome", "traj_group", "step_traj", "step_return", "step_state")


def columns(rows: int, *, steps: int = 50, size: int = 8, states: int = 100, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random columns: episodes of `steps` steps, groups of `size`, `states` different states a group."""
    rng = np.random.default_rng(seed)
    T = rows // steps
    group = np.arange(T) // size
    step_traj = np.repeat(np.arange(T), steps)
    return {
        "outcome": torch.from_numpy(rng.integers(0, 2, T).astype(np.float32) * 10),
        "traj_group": torch.from_numpy(group),
        "step_traj": torch.from_numpy(step_traj),
        "step_return": torch.from_numpy(rng.random(T * steps).astype(np.float32)),
        "step_state": torch.from_numpy(group[step_traj] * states + rng.integers(0, states, T * steps)),
    }


def gigpo_by_dict(outcome, traj_group, step_traj, step_return, step_state, eps: float = 1e-6) -> torch.Tensor:
    """GiGPO as it is often written: dictionaries of lists of scalars, two loops over rows."""
    scores, visits = defaultdict(list), defaultdict(list)
    for i in range(len(step_traj)):
        scores[int(traj_group[step_traj[i]])].append(outcome[step_traj[i]])
        visits[int(step_state[i])].append(step_return[i])
    episode = {g: (torch.stack(x).mean(), torch.stack(x).std()) for g, x in scores.items()}
    anchor = {s: (torch.stack(x).mean(), torch.stack(x).std() if len(x) > 1 else torch.tensor(1.0)) for s, x in visits.items()}
    out = torch.zeros(len(step_traj))
    for i in range(len(step_traj)):
        mean, std = episode[int(traj_group[step_traj[i]])]
        out[i] = (outcome[step_traj[i]] - mean) / (std + eps)
        mean, std = anchor[int(step_state[i])]
        out[i] += (step_return[i] - mean) / (std + eps)
    return out


def milliseconds(f: Callable[[], object], n: int) -> float:
    """Return CPU milliseconds per call, the first call not counted."""
    f()
    start = time.process_time()
    for _ in range(n):
        f()
    return (time.process_time() - start) / n * 1e3


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'rows':>8} {'grpo':>9} {'rloo':>9} {'gigpo':>9} {'by dict':>10}   CPU ms, one thread")
    for rows in (5_000, 20_000, 200_000):
        data = columns(rows)
        ours = [milliseconds(partial(call, bind("credit", n), data), 20 if rows < 1e5 else 5) for n in ("grpo", "rloo", "gigpo")]
        slow = "-"
        if rows <= 20_000:
            args = [data[n] for n in COLUMNS]
            difference = (gigpo_by_dict(*args) - call(bind("credit", "gigpo"), data)).abs().max().item()
            assert difference < 1e-3, difference
            start = time.process_time()
            gigpo_by_dict(*args)
            slow = f"{(time.process_time() - start) * 1e3:.0f}"
        print(f"{rows:>8} {ours[0]:>9.2f} {ours[1]:>9.2f} {ours[2]:>9.2f} {slow:>10}")


if __name__ == "__main__":
    main()
