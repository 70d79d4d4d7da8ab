"""One model over several processes: the numbers of one, whoever computes them; real torchrun children, one launch per number of processes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentgym import registry
from agentgym.config import Config, Shard, build, fingerprint, normalise
from agentgym.errors import CheckpointError, ConfigError, PolicyError
from agentgym.store import read_lines
from agentgym.trainers import shard
from agentgym.trainers.forward import Rows
from agentgym.trainers.model import load_model
from agentgym.trainers.panel import model_folder
from agentgym.trainers.ranks import Alone, Ranks, join
from agentgym.trainers.shard_files import export_command
from agentgym.trainers.train import train
from agentgym.types import Task

_spec = importlib.util.spec_from_file_location("shard_child", Path(__file__).with_name("shard_child.py"))
assert _spec and _spec.loader
child: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(child)

pytestmark = pytest.mark.xdist_group("shard")  # the fixtures are dear
TASK = {
    "env": {"name": "toy", "size": 3, "max_steps": 6},
    "splits": {"train": "train", "eval": "test"},
    "model": {"name": "tiny", "layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 64, "vocab": 320},
    "rollout": {"tasks": 5, "group_size": 2, "max_tokens": 4},
    "optimizer": {"lr": 0.01},
    "eval": {"show": 1},
    "checkpoint": {"every": 1},
    "run": {"trajectories_every": 1, "threads": 1},
    "loggers": {"jsonl": {}},
    "stages": {
        "warm": {"policy": "expert", "objectives": {"cross_entropy": {"observation_weight": 0.1}}, "update": {"count": 2}},
        "rl": {
            "teachers": {"peer": {"hint": "none", "flag": True, "mixed": False, "refresh": 2}},
            "credit": "stepopsd",
            "objectives": {"clip": {}, "kl": {"coefficient": 0.1}},
            "update": {"count": 3},
        },
    },
}


def launch(n: int, folder: Path, task: Path, device: str = "cpu") -> Any:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), str(child.__file__)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SHARD_DEVICE": device}
    done = subprocess.run([*command, str(folder), str(task)], capture_output=True, text=True, timeout=280, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return torch.load(folder / f"{n}.pt", weights_only=False, map_location="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shard")
    (path / "task.yaml").write_text(yaml.safe_dump(TASK), "utf-8")
    return path


@pytest.fixture(scope="module")
def alone() -> Iterator[Ranks]:
    """One process that holds its model as several would."""
    ranks = Ranks("cpu")
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """Each case in one process with a whole model."""
    return {name: child.learn(name, Alone()) for name in child.CASES}


@pytest.fixture(scope="module")
def found(folder: Path, alone: Ranks) -> dict[int, Any]:
    """Each case in 1, 2 and 4 processes. The second launch goes on with the run that the first was interrupted in."""
    one = {name: child.learn(name, alone) for name, (_, n) in child.CASES.items() if 1 in n}
    return {1: {"cases": one}} | {n: launch(n, folder, folder / "task.yaml") for n in (2, 4)}


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process: there is nothing to keep together")
def test_these_tests_stay_in_one_worker(request: pytest.FixtureRequest) -> None:
    """Else every worker starts the processes; a pytest that pytest-xdist does not know spreads groups without a word."""
    assert request.node.nodeid.endswith("@shard"), "start pytest with --dist loadgroup, as `make test` does"


EACH = [(name, n) for name, (_, numbers) in child.CASES.items() for n in sorted(numbers)]


@pytest.mark.parametrize("case, n", EACH, ids=[f"{c}-{n}" for c, n in EACH])
def test_the_gradient_does_not_depend_on_the_number_of_processes(case: str, n: int, plain: dict[str, Any], found: dict[int, Any]) -> None:
    """First gradient, clipped, and weights after three steps; log-probabilities before them, of the reference, of a frozen copy; metrics."""
    want, got = plain[case], found[n]["cases"][case]
    close = {"atol": 1e-5, "rtol": 1e-4} if "bfloat16" not in case else {"atol": 3e-2, "rtol": 3e-2}
    assert want["grads"].keys() == got["grads"].keys() and len(want["grads"]) > 3
    for name, g in want["grads"].items():
        torch.testing.assert_close(got["grads"][name].float(), g.float(), msg=lambda m, name=name: f"{name}: {m}", **close)
    assert sum(float(g.abs().sum()) for g in want["grads"].values()) > 0.1
    for column in ("before", "ref_logp", "stale"):
        torch.testing.assert_close(got[column], want[column], msg=lambda m, column=column: f"{column}: {m}", **close)
    torch.testing.assert_close(got["stale"], got["before"], atol=1e-6, rtol=0)  # the copy is of the weights before the steps
    torch.testing.assert_close(got["ref_logp"], got["before"], atol=1e-6, rtol=0)
    if case == "muon":  # its iteration is in bfloat16: a gradient's last bit may move a weight by one step of that
        close = {"atol": 1e-3, "rtol": 1e-3}
    if "bfloat16" not in case:
        for name, w in want["weights"].items():
            torch.testing.assert_close(got["weights"][name], w, msg=lambda m, name=name: f"{name}: {m}", **close)
        for a, b in zip(want["metrics"], got["metrics"], strict=True):
            assert a == pytest.approx(b, abs=1e-3 if case == "muon" else 2e-5)
    assert (got["metrics"][0]["shared"] > 0.2) == (case == "shared")
    assert want["metrics"][0]["grad_norm"] > (0.5 if "lora" not in case else 0)  # so that clipping happens
    assert got["dtypes"] == {torch.float32}


def test_weights_lie_in_parts_and_can_be_made_whole(found: dict[int, Any]) -> None:
    for n in (2, 4):
        for case, result in found[n]["cases"].items():
            total = sum(w.numel() for w in result["weights"].values())
            parts = [p[case] for p in found[n]["parts"]]
            assert sum(parts) == total * (2 if case == "groups" else 1) and max(parts) < 1.2 * total / (2 if case == "groups" else n)
            for name, w in result["weights"].items():
                half = torch.bfloat16 if "bfloat16" in case else torch.float32
                assert torch.equal(result["whole"][name], w.to(half).float()), name


def test_a_process_that_fails_is_heard_by_all(found: dict[int, Any]) -> None:
    for n in (2, 4):
        said = found[n]["failures"]
        assert said["well"] == [[4, 6, 8, 10, 12]] * n
        assert said["broken"] == [f"PolicyError: process 1 of {n} could not do its share: ValueError: one broke"] * n


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_checkpoint_of_two_is_read_by_four(found: dict[int, Any], optimizer: str) -> None:
    """Another step after a checkpoint gives the same weights, whoever wrote it and whoever reads it."""
    want, close = found[2]["files"][optimizer][2], {"atol": 1e-5 if optimizer == "adamw" else 1e-3, "rtol": 1e-4}
    assert set(found[4]["files"][optimizer]) == {2, 4}
    for got in found[4]["files"][optimizer].values():
        assert got["loss"] == pytest.approx(want["loss"], abs=1e-5)
        for name, w in want["weights"].items():
            torch.testing.assert_close(got["weights"][name], w, **close)


CLOCK = ("seconds", "wall_s", "time", "padding")  # how full micro-batches are depends on how they are dealt


def test_a_run_interrupted_in_two_processes_goes_on_in_four(folder: Path, found: dict[int, Any]) -> None:
    """The same episodes, metrics and weights as in one process and in one go; then one folder in Hugging Face format."""
    from agentgym.config import load

    train(load([folder / "task.yaml"], [f"run.dir={folder / 'straight'}"]))
    straight, pieces = folder / "straight", folder / "run"
    for file in sorted(straight.glob("*/*.jsonl.gz")):
        a, b = ([_words(t) for t in read_lines(root / file.parent.name / file.name)] for root in (straight, pieces))
        assert a == b and a, file
    a, b = ([{k: v for k, v in r.items() if not any(c in k for c in CLOCK)} for r in read_lines(f / "metrics.jsonl")] for f in (straight, pieces))
    assert len(a) == len(b) > 5
    for x, y in zip(a, b, strict=True):
        assert x == pytest.approx(y, abs=1e-5)
    summaries = [json.loads((f / "summary.json").read_text()) for f in (straight, pieces)]
    assert [s["updates"] for s in summaries] == [5, 5] and json.loads((pieces / "config.json").read_text())["shard"]["ranks"] == 4
    want = _weights(straight / "checkpoints" / "step-000005" / "model")
    for model in (pieces / "checkpoints" / "step-000005" / "model", export_command(pieces, folder / "exported")):
        for name, w in _weights(model).items():
            torch.testing.assert_close(w, want[name], atol=1e-5, rtol=1e-4)


def test_shards_are_put_together_for_who_reads_models(folder: Path, found: dict[int, Any]) -> None:
    step = folder / "run" / "checkpoints" / "step-000004"
    assert not (step / "model").exists()
    with pytest.raises(ConfigError, match=r"step-000004 holds shards of several devices; put them together first: agentgym export"):
        model_folder(str(step))
    assert export_command(step, None) == step / "model" and model_folder(str(step)) == str(step / "model")
    with pytest.raises(CheckpointError, match="holds no shards: only runs of several devices need this"):
        export_command(folder / "straight", None)


def _words(row: dict[str, Any]) -> Any:
    """Return a stored episode without its log-probabilities and advantages, which differ in the last bits."""
    if isinstance(row, dict):
        return {k: _words(v) for k, v in row.items() if k not in ("logprobs", "advantages", "advantage")}
    return [_words(x) for x in row] if isinstance(row, list) else row


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    model, _ = load_model(str(folder))
    return {n: p.detach() for n, p in model.named_parameters()}


# ------------------------------------------------------------------------------------------------------------- in this process


def test_an_episode_that_breaks_elsewhere_breaks_when_it_is_asked_for(alone: Ranks) -> None:
    good, bad = Task("good", "toy", "test"), Task("bad", "toy", "test")

    async def play(task: Task, sample: int) -> Any:
        from agentgym.types import Trajectory

        if task is bad:
            raise ValueError("no such door")
        return Trajectory(task, f"g{sample}")

    async def work() -> None:
        recall = await alone.deal_episodes(play, [(good, 0), (good, 1), (bad, 0)])
        assert (await recall(good, 1)).group == "g1"
        with pytest.raises(PolicyError, match="ValueError: no such door"):
            await recall(bad, 0)

    asyncio.run(work())


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 50)), min_size=1, max_size=30), st.integers(1, 8))
def test_tokens_are_dealt_evenly(shapes: list[tuple[int, int]], n: int) -> None:
    """All tokens once; as many passes for each as can be; rank 0 never the fewest; nobody much more than the mean."""
    work, first = [], 0
    for rows, length in shapes:
        inside = torch.ones(rows, length, dtype=torch.bool)
        ids = torch.arange(first, first + rows * length).view(rows, length)
        work.append(Rows(ids, inside, ids.flatten()))
        first += rows * length
    shares = shard.deal(shard.even(work, n), n, lambda r: r.ids.numel())
    assert sorted(i for s in shares for r in s for i in r.index.tolist()) == list(range(first))
    assert all(torch.equal(r.flat(r.ids), r.index) for s in shares for r in s)
    passes = [len(s) for s in shares]
    assert passes[0] == max(passes) <= min(passes) + 1
    load = [sum(r.ids.numel() for r in s) for s in shares]
    assert max(load) <= sum(load) / n + max(r.ids.numel() for s in shares for r in s)


def config(**layers: Any) -> Config:
    return build(normalise({"objectives": {"clip": {}}, "credit": "grpo", "shard": {"ranks": 2}, **layers}, "test"))


@pytest.mark.parametrize(
    "layers, says",
    [
        ({"shard": {"ranks": 6, "group": 4}}, r"shard\.group=4 does not divide the 6 processes"),
        ({"shard": {"ranks": 2, "compute": "bfloat61"}}, r"shard\.compute=bfloat61 is unknown.*Did you mean 'bfloat16'"),
        ({"shard": {"ranks": 2, "compute": "float16"}}, "would need its losses scaled"),
        ({"shard": {"ranks": 2, "offload": True}}, r"with run\.device=cpu they are there already"),
        ({"run": {"workers": 2}}, r"run\.workers=2 shares a model in one machine's memory.*set run\.workers=1"),
        ({"rollout": {"max_staleness": 1}}, r"stage rl: rollout\.max_staleness=1 lets other processes"),
        ({"critic": "head"}, r"stage rl: the critic head cannot work with a sharded model; none can"),
        ({"teachers": {"search_peers": {}}}, "the teacher search_peers cannot work with a sharded model; peer can"),
        ({"policy": "openai"}, None),
    ],
)
def test_what_a_sharded_model_cannot_do_is_said(layers: dict[str, Any], says: str | None) -> None:
    if says is None:  # plays without the model
        shard.check(config(**layers))
        return
    with pytest.raises(ConfigError, match=says):
        shard.check(config(**layers))


def remembers(logp: torch.Tensor, *, state: dict[str, Any]) -> torch.Tensor:
    """Count how often it is asked."""
    state["n"] = state.get("n", 0) + 1
    return -logp


def test_an_objective_with_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda kind, name: remembers if name == "r" else find(kind, name))
    with pytest.raises(ConfigError, match="the objective r has memory, which would differ between processes"):
        shard.check(config(objectives={"r": {}}))


def test_what_was_started_must_fit_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"shard\.ranks=2, but 1 process\(es\) were started. Start it torchrun --nproc-per-node 2 -m agentgym run"):
        join(config())
    with pytest.raises(ConfigError, match=r"shard\.compute=bfloat16 does nothing where the model is not sharded: set shard\.ranks=1"):
        join(config(shard={"compute": "bfloat16"}))
    assert type(join(config(shard={}))) is Alone
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"shard\.ranks=2, but 3 process\(es\) were started"):
        join(config())


def test_a_run_may_go_on_with_another_number_of_processes_but_not_with_other_passes() -> None:
    assert fingerprint(config(shard={"ranks": 2})) == fingerprint(config(shard={"ranks": 8, "group": 4})) == fingerprint(config(shard={}))
    assert fingerprint(config(shard={"ranks": 2, "compute": "bfloat16"})) != fingerprint(config(shard={"ranks": 2}))
    assert Shard() == config(shard={}).shard


GPUS = torch.cuda.device_count()


@pytest.mark.skipif(not GPUS, reason="no GPU that torch sees: NCCL, offloading and bfloat16 on devices were not run")
def test_the_same_on_gpus(folder: Path, plain: dict[str, Any]) -> None:
    n = 2 if GPUS > 1 else 1
    (folder / "gpu").mkdir()
    got = launch(n, folder / "gpu", folder / "task.yaml", "cuda")["cases"]
    for case in [c for c in got if "bfloat16" not in c]:
        for name, g in plain[case]["grads"].items():
            torch.testing.assert_close(got[case]["grads"][name].cpu(), g, atol=1e-4, rtol=1e-3)
