"""Several trainers that the cluster starts: one model, the numbers of one process, and nobody waits for one that is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agentgym import store
from agentgym.config import Config
from agentgym.errors import ConfigError, LostError, PolicyError
from agentgym.store import read_lines
from agentgym.trainers.cluster import _launch
from agentgym.trainers.cluster._launch import environments, trained_elsewhere
from agentgym.trainers.cluster._place import Trainer
from agentgym.trainers.cluster.local import devices
from agentgym.trainers.train import resume, train

TWO = {"number": 2, "cpus": 0.5}
pytestmark = pytest.mark.xdist_group("launch")


def tokens(folder: Path) -> dict[str, list[Any]]:
    """Return what was written and seen in every stored episode."""
    files = sorted(folder.glob("*/*.jsonl.gz"))
    return {f.name: [[(s.completion.tokens, s.observation, s.reward) for s in t.steps] for t in store.read(f)] for f in files}


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What a run by two trainers wrote, from the first test that made one."""
    return {}


def by_two(toy: Callable[..., Config], folder: str, **cluster: Any) -> Config:
    return toy({"rollout": {"tasks": 3}, "cluster": {"trainer": TWO, **cluster}}, name=folder)


@pytest.mark.parametrize("name", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_two_trainers_have_the_numbers_of_one_process(
    request: pytest.FixtureRequest, name: str, toy: Callable[..., Config], tmp_path: Path, known: dict[str, Any]
) -> None:
    if name == "ray":
        request.getfixturevalue("local_ray")
    alone = train(toy({"rollout": {"tasks": 3}, "shard": {"ranks": 1}}, name="alone"))
    found = train(by_two(toy, "run", name=name))
    assert found["updates"] == alone["updates"] == 4 and found["eval"]["final"]["success"] == alone["eval"]["final"]["success"]
    assert all(e["seconds"] > 0.01 for e in found["eval"].values())
    known["tokens"] = tokens(tmp_path / "run")
    assert known["tokens"] == tokens(tmp_path / "alone") and len(known["tokens"]) == 7
    for row, other in zip(*(read_lines(tmp_path / n / "metrics.jsonl") for n in ("run", "alone")), strict=True):
        assert row.get("loss") == pytest.approx(other.get("loss"), rel=1e-3, abs=1e-5)
        assert row.get("grad_norm") == pytest.approx(other.get("grad_norm"), rel=1e-3)


def test_one_that_is_lost_ends_the_others_and_the_run_goes_on_later(
    toy: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    """Killed after its first update; the other would wait for it for hours."""
    config = by_two(toy, "run")
    places: list[Any] = []
    met = _launch._met
    monkeypatch.setattr(_launch, "_met", lambda made: (places.extend(made), met(made))[1])

    def shoot() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if (tmp_path / "run" / "metrics.jsonl").exists() and "loss" in (tmp_path / "run" / "metrics.jsonl").read_text():
                os.kill(places[1].pid, signal.SIGKILL)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=shoot)
    killer.start()
    with pytest.raises(LostError, match=r"trainer 1 died \(exit code -9") as e:
        train(config)
    killer.join()
    assert f"agentgym resume {config.run.dir}" in e.value.__notes__[-1]
    assert all(p.ended for p in places)
    assert resume(tmp_path / "run")["updates"] == 4
    if "tokens" not in known:
        train(by_two(toy, "straight"))
        known["tokens"] = tokens(tmp_path / "straight")
    assert tokens(tmp_path / "run") == known["tokens"]


def test_who_is_who_is_what_torchrun_would_say() -> None:
    found = environments(["a", "a", "b"], "10.0.0.1", 29500)
    assert [(e["RANK"], e["LOCAL_RANK"]) for e in found] == [("0", "0"), ("1", "1"), ("2", "0")]
    for e in found:
        assert (e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"], e["MASTER_ADDR"], e["MASTER_PORT"]) == ("3", "2", "10.0.0.1", "29500")


class Still:
    """A place that answers `where` at once."""

    def __init__(self, machine: str) -> None:
        self.machine = machine

    def call(self, method: str) -> Future[Any]:
        out: Future[Any] = Future()
        out.set_result((self.machine, 1) if method == "where" else ("host", 1))
        return out


def test_ranks_of_one_machine_are_side_by_side() -> None:
    places, envs = _launch._met([Still(m) for m in "abaca"])  # type: ignore[arg-type]
    assert [p.machine for p in places] == list("aaabc")  # type: ignore[attr-defined]
    assert [e["LOCAL_RANK"] for e in envs] == ["0", "1", "2", "0", "0"] and envs[0]["LOCAL_WORLD_SIZE"] == "3"


def test_the_cause_is_told_rather_than_what_it_did_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_launch, "_GRACE", 0.05)
    first, second, third = Future[dict[str, Any]](), Future[dict[str, Any]](), Future[dict[str, Any]]()
    first.set_exception(PolicyError("the connection was closed"))
    second.set_exception(LostError("trainer 1 died"))
    with pytest.raises(LostError, match="trainer 1 died"):
        _launch._summary([first, second, third])
    with pytest.raises(PolicyError, match="connection"):
        _launch._summary([third, first])
    third.set_result({"updates": 3})
    assert _launch._summary([third, third]) == {"updates": 3}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"cluster": {"trainer": {"number": 1}}}, r"cluster.trainer.number is 1; on one machine it is 0 .* or the number that share the model"),
        ({"cluster": {"trainer": TWO, "envs": {"number": 1}}}, "cluster.engines and cluster.envs would serve nobody: leave them out"),
        ({"cluster": {"trainer": TWO}, "shard": {"ranks": 4}}, r"shard.ranks=4, but cluster.trainer.number=2 .*leave shard.ranks out"),
        (
            {"cluster": {"trainer": {"number": 2, "gpus": 1.0}}},
            r"cluster.trainer asks for 2 GPU\(s\) \(2 of them with 1 each\), this machine shows 0",
        ),
        ({"cluster": {"trainer": {"nubmer": 2}}}, "cluster.trainer: unknown key 'nubmer'. Did you mean 'number'"),
        ({"cluster": {"trainer": TWO}, "run": {"workers": 2}}, "run.workers"),
    ],
)
def test_what_does_not_fit_is_said_before_any_work(layer: dict[str, Any], message: str, toy: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(toy(layer))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_torchrun_and_the_cluster_do_not_both_start_trainers(toy: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.setenv(name, "2")
    config = toy({"cluster": {"trainer": TWO}})
    with pytest.raises(ConfigError, match=r"run it without torchrun, or leave cluster\.trainer out"):
        trained_elsewhere(config, resume=False)
    assert trained_elsewhere(config, resume=True) is None  # torchrun has started the processes that go on


def test_gpus_of_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices(Trainer(2, gpus=1.0), 2) == ["0", "1"]
