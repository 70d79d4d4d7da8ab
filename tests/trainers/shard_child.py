"""What every process of a sharded model does in the tests; torchrun starts it: shard_child.py FOLDER TASK.yaml; results go to FOLDER/N.pt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentgym import config as configuration
from agentgym.config import Config, build, merge, normalise
from agentgym.trainers import shard
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.ops import full
from agentgym.trainers.ranks import Alone, Ranks, join
from agentgym.trainers.session import Session
from agentgym.trainers.setup import model_of
from agentgym.trainers.shard_files import ShardedCheckpoints
from agentgym.trainers.streams import Reference, score
from agentgym.trainers.teacher._stale import Stale
from agentgym.trainers.update import Updater
from agentgym.types import Completion, Status, Step, Task, Trajectory

BASE: dict[str, Any] = {
    "env": {"name": "toy", "size": 3, "max_steps": 6},
    "splits": {"train": "train", "eval": "test"},
    # 3 heads and a width that 4 does not divide: shards of different size
    "model": {"name": "tiny", "layers": 2, "hidden": 30, "heads": 3, "kv_heads": 1, "head_dim": 10, "ffn": 50, "vocab": 300},
    "credit": "gigpo",
    "objectives": {"clip": {}, "kl": {"coefficient": 0.1}},
    "optimizer": {"lr": 0.01},
    "update": {"clip_norm": 0.5, "tokens_per_microbatch": 60},
    "run": {"threads": 1, "dir": "unused"},
}
DEVICE = os.environ.get("SHARD_DEVICE", "cpu")
# name → (layer on top of BASE, how many processes do it)
CASES: dict[str, tuple[dict[str, Any], set[int]]] = {
    "adamw": ({}, {1, 2, 4}),
    "muon": ({"optimizer": {"name": "muon", "lr": 0.01}}, {1, 2, 4}),
    "recompute": ({"model": {"gradient_checkpointing": True}}, {2}),
    "bfloat16": ({"shard": {"compute": "bfloat16"}}, {2}),
    "lora": ({"model": {"lora": {"r": 4, "alpha": 8.0}}}, {2}),
    "lora_bfloat16": ({"model": {"lora": {"r": 4, "alpha": 8.0}, "dtype": "bfloat16"}, "shard": {"compute": "bfloat16"}}, {2}),
    "groups": ({"shard": {"group": 2}}, {4}),
    "shared": ({"update": {"shared_prefix": "always", "tokens_per_microbatch": 200}}, {2}),
}


def configured(case: str) -> Config:
    layer: dict[str, Any] = {}
    for x in (BASE, CASES[case][0], {"run": {"device": DEVICE}}):
        layer = merge(layer, normalise(x, "test"))
    return build(layer)


def batch(common: int = 0) -> Batch:
    """Return 11 random episodes of different lengths, with advantages and log-probabilities that some clipping happens to.

    common  tokens with which all episodes of a group begin
    """
    rng = np.random.default_rng(0)
    played = []
    for i in range(11):
        steps = []
        for j in range(int(rng.integers(1, 6))):
            ids = rng.integers(0, 280, int(rng.integers(1, 6))).tolist()
            done = Completion("x", ids, (-rng.random(len(ids)) - 5.2).tolist(), version=0)
            prompt = ([i // 4 + 1] * common if j == 0 else []) + rng.integers(0, 280, int(rng.integers(2, 9))).tolist()
            steps.append(Step(prompt, bool(j and rng.random() < 0.2), done, "x", True, "o", 0.0, "s"))
        played.append(Trajectory(Task(f"g{i // 4}", "toy", "train"), f"g{i // 4}", steps, status=Status.TERMINATED))
    out = pack(played, discount=0.95)
    out.set_advantage(torch.from_numpy(rng.normal(size=out.n_steps)).float())
    return out


def learn(case: str, ranks: Alone) -> dict[str, Any]:
    """Take three optimiser steps and return the first gradient, weights, reference, and metrics; a plain model where `ranks` is alone."""
    c, share = configured(case), case == "shared"
    if isinstance(ranks, Ranks):
        model, _, spread = shard.load(c, ranks)
    else:
        (model, _), spread = model_of(c, DEVICE), None
    reference, stale, data = Reference(model), Stale(model, 100), batch(80 if share else 0)
    updater = Updater.from_config(c, model, crew=spread, stage="rl")
    grads: dict[str, torch.Tensor] = {}
    out: dict[str, Any] = {"metrics": [], "tokens": [], "before": score(model, data, temperature=1.0, budget=60, share=share)[0]}
    stale.at(0)
    for step in range(3):
        data.streams["ref_logp"] = reference.score(data, temperature=1.0, budget=60, share=share)
        updater._apply = _keeping(updater, grads if step == 0 else {})  # type: ignore[method-assign]
        found = updater.step(data)
        out["metrics"].append({k: v for k, v in found.items() if k not in ("seconds", "padding")})
    frozen = stale.at(3)
    out |= {"grads": grads, "weights": {n: full(p.detach()).clone() for n, p in model.named_parameters()}, "dtypes": dtypes(model)}
    out |= {"ref_logp": data.streams["ref_logp"], "stale": score(frozen, data, temperature=1.0, budget=60)[0]}
    if spread is not None:
        with spread.whole():
            out["whole"] = {n: p.detach().float().clone() for n, p in model.named_parameters()}
        out["parts"] = sum(shard.local(p.detach()).numel() for p in model.parameters())
    return out


def _keeping(updater: Updater, grads: dict[str, torch.Tensor]) -> Any:
    """Return the updater's `_apply`, which notes the gradient first."""

    def apply() -> dict[str, float]:
        grads.update({n: full(p.grad).clone() for n, p in updater.model.named_parameters() if p.grad is not None})
        return Updater._apply(updater)

    return apply


def dtypes(model: torch.nn.Module) -> set[torch.dtype]:
    return {p.dtype for p in model.parameters() if p.requires_grad}


def write_and_read(folder: Path, ranks: Ranks, optimizer: str) -> dict[str, Any]:
    """Take a step, write a checkpoint, take another; and do the second one again from the checkpoint of the processes before these."""
    c = configured(optimizer)
    model, tokenizer, spread = shard.load(c, ranks)
    updater, data = Updater.from_config(c, model, crew=spread), batch()
    data.streams["ref_logp"] = torch.full((data.n_tokens,), -5.0)
    files = ShardedCheckpoints(folder / f"{optimizer}-{ranks.n}", spread, keep_last=2, fingerprint="f")
    updater.step(data)
    files.save(1, tokenizer, {"parts": {"optimizer": updater.state_dict(), "other": [torch.ones(2), "text"]}})
    files.close()
    out = {}
    for n in sorted({ranks.n, *(int(p.name.split("-")[1]) for p in folder.glob(f"{optimizer}-*"))}):
        model, _, spread = shard.load(c, ranks)
        again = Updater.from_config(c, model, crew=spread)
        there = ShardedCheckpoints(folder / f"{optimizer}-{n}", spread, keep_last=2, fingerprint="f")
        found = there.load_latest()
        assert found is not None and found[1]["parts"]["other"][1] == "text"
        again.load_state_dict(found[1]["parts"]["optimizer"])
        metrics = again.step(data)
        there.close()
        out[n] = {"weights": {k: full(p.detach()).clone() for k, p in model.named_parameters()}, "loss": metrics["loss"]}
    return out


def failures(ranks: Ranks) -> dict[str, Any]:
    """Let one process fail while the others do well, and say what each of them hears."""
    import asyncio

    async def work(mine: Any) -> list[int]:
        if 1 in mine:
            raise ValueError("one broke")
        return [2 * x for x in mine]

    def said(jobs: list[int]) -> Any:
        try:
            return asyncio.run(ranks.deal(jobs, work))
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    return {"well": ranks.gather(said([2, 3, 4, 5, 6])), "broken": ranks.gather(said([0, 1, 2, 3]))}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    ranks = join(configured("adamw"))
    assert isinstance(ranks, Ranks)
    out: dict[str, Any] = {"failures": failures(ranks)}
    out["cases"] = {name: learn(name, ranks) for name, (_, n) in CASES.items() if ranks.n in n}
    (folder / "files").mkdir(exist_ok=True)
    out["files"] = {o: write_and_read(folder / "files", ranks, o) for o in ("adamw", "muon")}
    everybody = ranks.gather({name: x["parts"] for name, x in out["cases"].items()})
    if ranks.first:
        torch.save(out | {"parts": everybody}, folder / f"{ranks.n}.pt")
    run(Path(sys.argv[2]), folder / "run")


def run(task: Path, where: Path) -> None:
    """Begin the run and be interrupted after its third update, or go on with it."""
    from agentgym.trainers.train import resume, train

    if (where / "config.json").exists():
        resume(where)
        return
    record = Session.record

    def interrupted(self: Session, *args: Any) -> None:
        if self.state.version == 3:
            os._exit(0)
        record(self, *args)

    Session.record = interrupted  # type: ignore[method-assign]
    train(configuration.load([task], [f"run.dir={where}", f"run.device={DEVICE}"]))


if __name__ == "__main__":
    main()
