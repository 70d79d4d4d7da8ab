"""Whole runs with policy vllm on the toy environment: in process, and against a server that is killed on the way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym import store
from agentgym.config import Config, build, merge, normalise
from agentgym.trainers import setup
from agentgym.trainers.model import load_model, save_model
from agentgym.trainers.policy.vllm import vllm
from agentgym.trainers.train import train

pytest.importorskip("vllm", reason="the package vllm is not installed here: run .ci/vllm")

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

RUN: dict[str, Any] = {
    "model": {"head_dim": 32},
    "objectives": None,
    "rollout": {"tasks": 4, "group_size": 4},
    "stages": {
        "rl": {"credit": "gigpo", "weights": {"mismatch": {}, "veto": {}}, "objectives": {"decoupled_clip": {}}, "update": {"count": 3}},
    },
}


def rows(folder: str) -> list[dict[str, Any]]:
    return [r for r in store.read_lines(Path(folder) / "metrics.jsonl") if r.get("stage") == "rl" and "loss" in r]


@pytest.fixture
def config(toy_layer: dict[str, Any], tmp_path: Path) -> Callable[..., Config]:
    def make(*layers: dict[str, Any]) -> Config:
        merged: dict[str, Any] = {}
        for layer in (toy_layer, RUN, *layers, {"run": {"dir": str(tmp_path / "run")}}):
            merged = merge(merged, normalise(copy.deepcopy(layer), "test"))
        return build(merged)

    return make


def test_a_run_in_process(config: Callable[..., Config]) -> None:
    c = config({"policy": {"name": "vllm", "kv_gb": 0.25}})
    summary = train(c)
    found = rows(c.run.dir)
    assert len(found) == 3 and summary["updates"] == 5
    for r in found:
        assert r["mismatch/mean"] < 1e-4 and r["mismatch/max"] < 1e-3 and 0 <= r["mismatch/k3"] < 1e-6 and r["mismatch/tokens"] > 50
        assert r["engine/probe_max"] < 1e-4 and r["rollout/errors"] == 0 and r["seconds/publish"] > 0
    assert len({r["engine/pushes"] for r in found}) == 3  # one after every update


def test_a_run_against_a_server_that_is_killed_in_the_middle_of_a_rollout(
    config: Callable[..., Config], tmp_path: Path, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = config()
    size = {k: v for k, v in plain.model.options.items() if k != "name"}
    folder = save_model(*load_model("tiny", corpus=setup.corpus(plain), **size), tmp_path / "toy")
    server = serve(folder)
    server.wait_for("answers after")
    count, complete = 0, vllm.complete

    async def counted(self: vllm, *args: Any) -> Any:
        nonlocal count
        count += self.version == 3
        if count == 5:
            count += 1
            server.kill_server()
        return await complete(self, *args)

    monkeypatch.setattr(vllm, "complete", counted)
    c = config({"model": {"name": str(folder)}, "policy": {"name": "vllm", "urls": [server.url]}})
    train(c)
    found = rows(c.run.dir)
    assert [r["engine/restarts"] for r in found] == [0, 1, 1]
    for r in found:
        assert r["rollout/errors"] == 0 and r["rollout/episodes"] == 16 and r["mismatch/max"] < 1e-3 and r["engine/probe_max"] < 1e-4
    assert "another one takes its place" in server.log.read_text("utf-8", "replace")
    assert server.end() == 130
