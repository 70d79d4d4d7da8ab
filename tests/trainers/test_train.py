"""LOOP 2, end to end: a warm start and RL on the toy environment with a model of 20 thousand parameters."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym import store
from agentgym.config import Config, fingerprint
from agentgym.errors import ConfigError, PolicyError, TaskError
from agentgym.store import read_lines
from agentgym.trainers import setup
from agentgym.trainers.session import Session
from agentgym.trainers.train import resume, train
from agentgym.types import Status, Task, Trajectory

CLOCK = re.compile("seconds|wall_s|time")


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl without what the clock says."""
    return [{k: v for k, v in row.items() if not CLOCK.search(k)} for row in read_lines(folder / "metrics.jsonl")]


def trajectories(folder: Path) -> dict[str, bytes]:
    return {f.name: gzip.decompress(f.read_bytes()) for f in sorted(folder.glob("*/*.jsonl.gz"))}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    (last,) = sorted((folder / "checkpoints").glob("step-*"))[-1:]
    return load_file(last / "model" / "model.safetensors")


# ------------------------------------------------------------------------------------------------------------- a whole run


@pytest.fixture(scope="module", params=[1, 2])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path, dict[str, Any]]:
    from agentgym.config import build, normalise

    conftest = next(m for n, m in __import__("sys").modules.items() if n.endswith("conftest") and hasattr(m, "TOY"))
    folder = tmp_path_factory.mktemp("run") / "one"
    layer = normalise({**conftest.TOY, "run": {"dir": str(folder), "workers": request.param, "threads": 1, "trajectories_every": 1}}, "test")
    config = build(layer)
    return config, folder, train(config)


def test_summary(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    config, folder, summary = finished
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert list(summary["eval"]) == ["before", "warm", "final"]
    held_out = setup.tasks_of(config, "test")
    for part in summary["eval"].values():
        assert 0 <= part["low"] <= part["success"] <= part["high"] <= 1 and part["n"] == len(held_out) == 3
    assert summary["updates"] == 4 and summary["seeds"] == {"run": 0} and summary["wall_s"] > 0
    assert [summary["eval"][n]["version"] for n in ("before", "warm", "final")] == [0, 2, 4]


def test_config_and_manifest(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    config, folder, _ = finished
    assert Session.config_of(folder) == config
    manifest = json.loads((folder / "manifest.json").read_text())
    splits = {n: setup.split_hash(setup.tasks_of(config, n)) for n in ("train", "test")}
    assert manifest["splits"] == splits and splits["train"] != splits["test"]
    assert manifest["fingerprint"] == fingerprint(config) and manifest["seed"] == 0 and manifest["packages"]["torch"]
    assert len(splits["train"]) == 64


def test_metrics(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    rows = metrics(finished[1])
    assert [(r["stage"], r["step"]) for r in rows] == [
        ("before", 0), ("warm", 1), ("warm", 2), ("warm", 2), ("rl", 3), ("rl", 4), ("final", 4),
    ]  # fmt: skip
    warm, rl = rows[1], rows[4]
    assert warm["demonstration/success"] == 1 and warm["demonstration/episodes"] == 4 and warm["loss/cross_entropy"] > 0
    assert rl["rollout/episodes"] == 4 and rl["rollout/errors"] == 0 and "loss/clip" in rl and rl["clip_fraction"] == 0
    assert all(math.isfinite(v) for r in rows for v in r.values() if isinstance(v, float))


def test_trajectories_can_be_read(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    from transformers import AutoTokenizer

    folder = finished[1]
    file = folder / "trajectories" / "rl-000002.jsonl.gz"
    tokenizer = AutoTokenizer.from_pretrained(folder / "checkpoints" / "step-000004" / "model")
    for row in read_lines(file):
        for step in row["steps"]:
            assert isinstance(step["advantage"], float) and len(step["tokens"]) == len(step["logprobs"]) > 0
            assert all(p <= 0 for p in step["logprobs"]) and step["version"] == 3  # the weights after three updates
            assert step["observation"] in tokenizer.decode(step["prompt"]).replace("<|user|> ", "<|user|>")
            assert {"completion", "action", "valid", "reward"} <= set(step)
    episodes = list(store.read(file))
    assert len(episodes) == 4 and len({t.group for t in episodes}) == 2
    for t in store.read(folder / "trajectories" / "warm-000001.jsonl.gz"):
        assert t.success and t.steps[0].completion.logprobs is None
    held_out = list(store.read(folder / "eval" / "final.jsonl.gz"))
    assert [t.task.split for t in held_out] == ["test"] * 3


def test_a_truncated_episode_says_so(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    episodes = list(store.read(finished[1] / "trajectories" / "rl-000001.jsonl.gz"))
    assert episodes and all((t.status is Status.TRUNCATED) == (len(t.steps) == 6 and t.final_observation.startswith("N")) for t in episodes)
    from agentgym.trainers.batch import pack

    assert pack(episodes, discount=0.9).truncated.tolist() == [t.status is Status.TRUNCATED for t in episodes]


def test_what_a_person_looks_at(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    folder = finished[1]
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "episodes.md").read_text("utf-8")
    assert "saw" in text and "(toy, test)" in text


def test_checkpoints_are_ordinary_models(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = finished[1]
    kept = sorted(p.name for p in (folder / "checkpoints").iterdir() if not p.name.startswith("."))
    assert kept[1:] == ["step-000003", "step-000004"] and kept[0].startswith("best-")
    where = folder / "checkpoints" / "step-000004" / "model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(where), AutoTokenizer.from_pretrained(where)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "You are in the cellar."}], add_generation_prompt=True, return_tensors="pt")
    ids = ids if isinstance(ids, torch.Tensor) else ids["input_ids"]
    assert torch.isfinite(model(ids).logits).all() and model.config.vocab_size == len(tokenizer)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in weights(folder).items())


def test_a_finished_run_is_left_alone(finished: tuple[Config, Path, dict[str, Any]]) -> None:
    config, folder, _ = finished
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file())
    with pytest.raises(ConfigError, match=r"already holds a run\. Choose another run\.dir, or go on with it: agentgym resume"):
        train(config)
    from agentgym.errors import CheckpointError

    with pytest.raises(CheckpointError, match="is finished"):
        resume(folder)
    assert before == sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file())


# ---------------------------------------------------------------------------------------------------------- repeatability


def test_the_same_seed_gives_the_same_run(toy: Callable[..., Config], tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(toy({"run": {"seed": seed}}, name=name))
    a, b, c = (tmp_path / n for n in "abc")
    assert trajectories(a) == trajectories(b) and metrics(a) == metrics(b)
    assert all(torch.equal(x, weights(b)[k]) for k, x in weights(a).items())
    assert trajectories(a)["rl-000001.jsonl.gz"] != trajectories(c)["rl-000001.jsonl.gz"]
    assert (a / "episodes.md").read_text() == (b / "episodes.md").read_text()


def test_the_size_of_a_micro_batch_changes_nothing(toy: Callable[..., Config], tmp_path: Path) -> None:
    for name, tokens in (("big", 100_000), ("small", 40)):
        train(toy({"stages": {"rl": None, "warm": {"update": {"tokens_per_microbatch": tokens}}}}, name=name))
    big, small = weights(tmp_path / "big"), weights(tmp_path / "small")
    for k in big:
        torch.testing.assert_close(big[k], small[k], atol=2e-5, rtol=1e-4)


def test_it_learns(toy: Callable[..., Config]) -> None:
    layer = {
        "env": {"max_steps": 8}, "checkpoint": {"every": 50}, "run": {"trajectories_every": 0},
        "stages": {"rl": None, "warm": {"rollout": {"tasks": 9}, "update": {"count": 50}, "optimizer": {"lr": 0.02}}},
    }  # fmt: skip
    config = toy(layer)
    summary = train(config)
    rows = [r for r in metrics(Path(config.run.dir)) if "nll" in r]
    assert rows[0]["nll"] > 4 and rows[-1]["nll"] < 0.5
    assert summary["eval"]["final"]["invalid_share"] < summary["eval"]["before"]["invalid_share"] == 1


# -------------------------------------------------------------------------------------------------------------- the options


def test_an_expert_at_the_top_is_refused(plain_toy: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"stages\.warm\.policy=expert"):
        train(plain_toy({"policy": "expert"}))


def test_failed_episodes_are_counted_and_not_learned_from(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    config = plain_toy({"env": {"fail_rate": 0.4}, "rollout": {"tasks": 4, "group_size": 3}})
    train(config)
    rows = [r for r in metrics(tmp_path / "run") if r["stage"] == "rl"]
    errors = [r["rollout/errors"] for r in rows]
    assert all(r["rollout/episodes"] == 12 for r in rows) and 0 < sum(errors) < 24
    for row, file in zip(rows, sorted((tmp_path / "run" / "trajectories").iterdir()), strict=True):
        kept = list(store.read(file))
        assert len(kept) == 12 - row["rollout/errors"] and not any(t.failed for t in kept)


def test_nothing_but_failures_ends_the_run(plain_toy: Callable[..., Config]) -> None:
    config = plain_toy({"env": {"fail_rate": 1.0}})
    with pytest.raises(PolicyError, match="all 4 episodes failed; the first: EnvError: toy: episode of task") as e:
        train(config)
    assert f"agentgym resume {config.run.dir}" in e.value.__notes__[0]


def test_a_mistake_in_a_late_stage_is_found_before_any_work(toy: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"credit 'gigpo' has no option 'step_wait'. Did you mean 'step_weight'"):
        train(toy({"stages": {"rl": {"credit": {"step_wait": 1.0}}}}))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert train(toy({"eval": {"show": 0}}))["updates"] == 4  # and the folder is free for the next try


def test_a_missing_column_is_found_before_any_work(toy: Callable[..., Config], tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def needs_more(outcome, teacher_logp):\n    return outcome\n")
    with pytest.raises(ConfigError, match="needs_more needs 'teacher_logp', which nothing provides"):
        train(toy({"stages": {"rl": {"credit": f"{mine}:needs_more"}}}))
    with pytest.raises(ConfigError, match="there is no objective"):
        train(toy({"stages": {"rl": {"objectives": {"clip": None}}}}))


def test_ones_own_method_with_memory(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def running(outcome, step_traj, *, decay: float = 0.9, state: dict):\n"
        '    """Return outcome minus a running mean."""\n'
        "    state['n'] = state.get('n', 0) + 1\n"
        "    return (outcome - state['n'])[step_traj]\n"
    )
    config = plain_toy({"credit": {"name": f"{mine}:running", "decay": 0.5}, "env": {"max_steps": 2}})
    train(config)
    means = []
    for n in (1, 2):
        rows = list(read_lines(tmp_path / "run" / "trajectories" / f"rl-{n:06d}.jsonl.gz"))
        means += [{r["outcome"] - s["advantage"] for r in rows for s in r["steps"]}]
    assert means == [{1.0}, {2.0}]


def test_dynamic_sampling_draws_until_there_is_spread(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    mine = tmp_path / "luck.py"
    mine.write_text(
        "def luck(trajectory) -> float:\n    return float(int(trajectory.group.split('-')[2]) and hash(trajectory.steps[0].action) % 7)\n"
    )
    layer = {"rollout": {"drop_uniform": True, "max_draws": 3}, "rewards": {"luck": {"name": f"{mine}:luck"}}, "update": {"count": 1}}
    train(plain_toy(layer))
    (row,) = [r for r in metrics(tmp_path / "run") if r["stage"] == "rl"]
    assert row["rollout/episodes"] >= 8  # the first draw has no spread by construction
    train(plain_toy({"rollout": {"drop_uniform": True, "max_draws": 3}, "update": {"count": 1}}, name="flat"))
    (row,) = [r for r in metrics(tmp_path / "flat") if r["stage"] == "rl"]
    assert row["rollout/episodes"] == 12 and row["grad_norm"] == 0  # nothing has spread: all draws, no gradient


def test_a_reference_is_kept_where_somebody_asks(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    train(plain_toy({"objectives": {"kl": {"coefficient": 0.1}}, "credit": "grpo"}))
    rows = [r for r in metrics(tmp_path / "run") if r["stage"] == "rl"]
    assert rows[0]["ref_kl"] == pytest.approx(0, abs=1e-9) and (tmp_path / "run" / "reference" / "rl").is_dir()


def test_evaluation_in_between_and_minutes(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    summary = train(plain_toy({"eval": {"every": 1, "tasks": 2}, "update": {"count": 3}}))
    assert list(summary["eval"]) == ["before", "rl-1", "rl-2", "final"] and summary["eval"]["rl-1"]["n"] == 2
    summary = train(plain_toy({"run": {"minutes": 1e-6}, "update": {"count": 3}}, name="short"))
    assert summary["updates"] == 0 and list(summary["eval"]) == ["before", "final"]


def test_a_failing_evaluation_measures_nothing_and_says_so(plain_toy: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Any, agent: Any, task: Task, *, group: str, seed: int) -> Trajectory:
        return Trajectory(task, group, status=Status.ERROR, error="EnvError: gone")

    monkeypatch.setattr("agentgym.rollout.Gym.play", broken)
    config = plain_toy({"update": {"count": 0}})
    summary = train(config)
    assert summary["eval"]["final"]["n"] == 0 and summary["eval"]["final"]["errors"] == 3 and summary["eval"]["final"]["success"] is None


# -------------------------------------------------------------------------------------------------- held out means held out


def test_splits_must_be_disjoint(toy: Callable[..., Config]) -> None:
    with pytest.raises(TaskError, match=r"9 held-out task\(s\) are also in the training split, e\.g\. '3:.*choose disjoint splits"):
        train(toy({"splits": {"eval": "train"}}))
    with pytest.raises(Exception, match=r"toy: there is no split 'tests'. Did you mean 'test'"):
        train(toy({"splits": {"eval": "tests"}}))


def test_the_panel_never_changes(toy: Callable[..., Config], tmp_path: Path) -> None:
    tasks = setup.tasks_of(toy(), "test")
    panel = setup.Panel(tasks, None, 0)  # type: ignore[arg-type]
    assert panel.some(None) == tasks == panel.some(99) and panel.some(2) == [tasks[0], tasks[1]] and len(panel.some(1)) == 1
    assert setup.split_hash(tasks) == setup.split_hash(tasks[::-1]) != setup.split_hash(tasks[1:])
    assert setup.seed_of("a", 1) == setup.seed_of("a", 1) != setup.seed_of("a", 2)


def test_a_policy_that_needs_a_model(toy: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match="policy 'hf' needs a model"):
        setup.make_policy(toy().policy, None, None)
