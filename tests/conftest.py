"""One thread for every test (more of them only wait for each other on a shared machine), and small runs on the toy environment."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for every process that a test starts
os.environ["HF_HUB_OFFLINE"] = "1"  # an unknown model's name fails at once, not after retries

from agentgym.config import Config, build, merge, normalise


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


MODEL = {"name": "tiny", "layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 64, "vocab": 320}
WARM = {
    "policy": "expert",
    "objectives": {"cross_entropy": {"observation_weight": 0.1}},
    "rollout": {"tasks": 4, "group_size": 1},
    "update": {"count": 2},
}
TOY: dict[str, Any] = {
    "env": {"name": "toy", "size": 3, "max_steps": 6},
    "splits": {"train": "train", "eval": "test"},
    "model": MODEL,
    "rollout": {"tasks": 2, "group_size": 2, "max_tokens": 4},
    "optimizer": {"lr": 0.01},
    "eval": {"show": 1},
    "checkpoint": {"every": 1},
    "run": {"trajectories_every": 1, "threads": 1},
    "loggers": {"jsonl": {}},
    "stages": {"warm": WARM, "rl": {"credit": "gigpo", "objectives": {"clip": {}}, "update": {"count": 2}}},
}


@pytest.fixture
def toy_layer() -> dict[str, Any]:
    """The smallest run there is, as a layer of configuration: two warm updates, two of RL."""
    return copy.deepcopy(TOY)


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., Config]:
    """Return a maker of such runs: layers go on top; the folder is `tmp_path / name`."""

    def make(*layers: dict[str, Any], name: str = "run") -> Config:
        merged: dict[str, Any] = {}
        for layer in (TOY, *layers, {"run": {"dir": str(tmp_path / name)}}):
            merged = merge(merged, normalise(layer, "test"))
        return build(merged)

    return make


@pytest.fixture
def plain_toy(toy: Callable[..., Config]) -> Callable[..., Config]:
    """Like `toy`, without stages: one stage of RL."""
    rl = {"stages": None, "credit": "gigpo", "objectives": {"clip": {}}, "update": {"count": 2}}
    return lambda *layers, name="run": toy(rl, *layers, name=name)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Return what runs an agentgym command in this process, in an empty folder: → (exit code, stdout, stderr)."""
    from agentgym import cli

    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agentgym", *args])
        capsys.readouterr()
        with pytest.raises(SystemExit) as e:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return int(e.value.code or 0), out, err

    return run
