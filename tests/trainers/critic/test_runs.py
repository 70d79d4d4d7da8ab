"""Whole runs with a critic: one that was broken off goes on to the same numbers, and a saved model keeps its reserved tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.config import Config
from agentgym.store import read_lines
from agentgym.trainers import reserve
from agentgym.trainers.model import load_model
from agentgym.trainers.session import Session
from agentgym.trainers.train import resume, train

CLOCK = ("seconds", "wall_s", "time")
WITH_CRITIC: dict[str, dict[str, Any]] = {
    "head": {
        "critic": {"name": "head", "lr": 1e-3, "warmup": 1, "minibatches": 2, "freeze": "attention", "lr_warmup": 5},
        "credit": "gae",
        "objectives": {"clip": {}},
    },
    "autoregressive": {
        "critic": {"name": "autoregressive", "scale": 1.0, "warmup": 2},
        "credit": "step_gae",
        "objectives": {"clip": {}, "state": {"name": "value", "of": "state"}, "action": {"name": "value", "of": "action"}},
    },
}


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not any(c in k for c in CLOCK)} for row in read_lines(folder / "metrics.jsonl")]


@pytest.mark.parametrize("name", list(WITH_CRITIC))
def test_a_broken_off_run_goes_on_to_the_same_numbers(
    name: str, plain_toy: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = {**WITH_CRITIC[name], "update": {"count": 4}}
    train(plain_toy(layer, name="straight"))
    record = Session.record

    def break_off(self: Session, *args: Any) -> None:
        if self.state.update == 2:  # after one update that is in a checkpoint
            raise KeyboardInterrupt
        record(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Session, "record", break_off)
        train(plain_toy(layer, name="broken"))
    resume(tmp_path / "broken")
    rows = metrics(tmp_path / "straight")
    assert rows == metrics(tmp_path / "broken")
    warmup = WITH_CRITIC[name]["critic"]["warmup"]
    assert [("loss" in r) for r in rows if "critic/value_mean" in r] == [i >= warmup for i in range(4)]  # at first the policy stays as it is
    model = sorted((tmp_path / "broken" / "checkpoints").glob("step-*"))[-1] / "model"
    assert (reserve.reserved(load_model(str(model))[0]) is not None) == (name == "autoregressive")
