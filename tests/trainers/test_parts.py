"""Critics and teachers in the training loop: read or refused, saved and resumed, and a policy that waits for its critic."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.config import Config
from agentgym.errors import ConfigError
from agentgym.store import read_lines
from agentgym.trainers.train import resume, train

MINE = """
import torch

class mean:
    '''Knows one number: the mean outcome so far.'''

    provides = ("value",)

    def __init__(self, model, renderer, *, warmup: int = 0):
        self.warmup, self.sum, self.n = warmup, 0.0, 0

    def fill(self, batch, round):
        assert [t.outcome for t in round.trajectories] == batch.outcome.tolist()
        return {"value": torch.full((batch.n_tokens,), self.sum / max(self.n, 1))}

    def learn(self, batch, round, generator):
        self.sum, self.n = self.sum + float(batch.outcome.sum()), self.n + batch.n_trajectories
        return {"critic/n": float(self.n)}

    def warming(self, update):
        return update < self.warmup

    def state_dict(self):
        return {"sum": self.sum, "n": self.n}

    def load_state_dict(self, state):
        self.sum, self.n = state["sum"], state["n"]


def against(outcome, value, step_traj, step, *, scale: float = 1.0):
    '''Return the outcome minus the critic's number, with a metric of its own.'''
    return scale * (1.0 + outcome[step_traj][step] - value), {"baseline": float(value.mean())}


def placed(outcome, step_traj, step_penalty):
    '''Return twice the penalty alone.'''
    return 2 * step_penalty
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def rl_rows(folder: Path) -> list[dict[str, Any]]:
    return [r for r in read_lines(folder / "metrics.jsonl") if r.get("stage") == "rl" and "rollout/success" in r]


def model_of(folder: Path, step: int) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    (found,) = folder.glob(f"checkpoints/step-*{step}/model/model.safetensors")
    return load_file(found)


def test_a_policy_waits_for_its_critic(plain_toy: Callable[..., Config], mine: str, tmp_path: Path) -> None:
    layer = {"credit": f"{mine}:against", "critic": {"name": f"{mine}:mean", "warmup": 2}, "update": {"count": 3}, "checkpoint": {"keep_last": 9}}
    train(plain_toy(layer))
    rows = rl_rows(tmp_path / "run")
    assert [r["critic/n"] for r in rows] == [4, 8, 12] and [("loss" in r) for r in rows] == [False, False, True]
    assert rows[0]["credit/baseline"] == 0 and all("seconds/stream/critic" in r and "seconds/learn/critic" in r for r in rows)
    one, two, three = (model_of(tmp_path / "run", n) for n in (1, 2, 3))
    assert all(torch.equal(one[k], two[k]) for k in one) and not all(torch.equal(two[k], three[k]) for k in two)


def test_a_critic_is_resumed(plain_toy: Callable[..., Config], mine: str, tmp_path: Path) -> None:
    layer = {"credit": f"{mine}:against", "critic": f"{mine}:mean", "update": {"count": 3}}
    train(plain_toy(layer, name="whole"))
    config = plain_toy(layer)
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym.trainers.train.Stage.rollouts", _stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    resume(Path(config.run.dir))
    whole, parts = rl_rows(tmp_path / "whole"), rl_rows(tmp_path / "run")
    names = ("critic/n", "credit/baseline", "loss", "grad_norm")
    assert [[r[n] for n in names] for r in whole] == [[r[n] for n in names] for r in parts]


def _stop_at(update: int) -> Any:
    from agentgym.trainers.train import Stage

    play = Stage.rollouts

    async def rollouts(self: Stage) -> Any:
        if self.s.state.update == update:
            raise KeyboardInterrupt
        return await play(self)

    return rollouts


def test_a_critic_that_nobody_reads_is_refused(plain_toy: Callable[..., Config], mine: str) -> None:
    with pytest.raises(ConfigError, match="critic provides value, which neither credit, weights nor objectives read"):
        train(plain_toy({"critic": f"{mine}:mean"}))
    with pytest.raises(ConfigError, match="against needs 'value', which nothing provides"):
        train(plain_toy({"credit": f"{mine}:against"}))


@pytest.mark.parametrize(("credit", "factor"), [("placed", 2.0), ("grpo", 1.0)])
def test_who_names_the_penalty_places_it(credit: str, factor: float, plain_toy: Callable[..., Config], mine: str, tmp_path: Path) -> None:
    name = f"{mine}:{credit}" if credit == "placed" else credit
    train(plain_toy({"credit": name, "rollout": {"invalid_penalty": 0.5}, "update": {"count": 1}}))
    steps = [s for r in read_lines(tmp_path / "run" / "trajectories" / "rl-000001.jsonl.gz") for s in r["steps"]]
    assert {s["advantage"] for s in steps if not s["valid"]} == {-0.5 * factor} and any(not s["valid"] for s in steps)


def test_a_run_whose_rollouts_are_ahead(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    layer = {"rollout": {"max_staleness": 2}, "update": {"count": 6}, "eval": {"every": 3}}
    config = plain_toy(layer)
    with pytest.MonkeyPatch.context() as m:
        m.setattr("agentgym.trainers.train.Stage.rollouts", _stop_at(3))
        with pytest.raises(KeyboardInterrupt):
            train(config)
    summary = resume(Path(config.run.dir))
    rows = rl_rows(tmp_path / "run")
    assert summary["updates"] == 6 and [r["update"] for r in rows] == [1, 2, 3, 4, 5, 6]
    assert all(r["rollout/episodes"] == 4 and r["rollout/ahead"] >= 0 for r in rows)
    assert max(r.get("staleness/max", 0.0) for r in rows) <= 2
    played = [r["group"] for f in (tmp_path / "run" / "trajectories").glob("rl-*") for r in read_lines(f)]
    assert len(set(played)) == 12 and len(played) == 24  # two groups an update; none was learnt from twice
    assert not [p for p in multiprocessing.active_children() if "generator" in p.name]
