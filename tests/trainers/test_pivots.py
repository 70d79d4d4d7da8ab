"""`agentgym pivots`: an expert's decisions, what a policy makes of them, and the data set of those that are worth training on."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentgym import registry, store
from agentgym.config import Config, load
from agentgym.errors import ConfigError, DataError, PolicyError
from agentgym.rollout import Agent, Gym
from agentgym.store import read_lines
from agentgym.trainers import pivots as command
from agentgym.trainers import setup
from agentgym.trainers.decisions import check_training, decisions, trajectories_of
from agentgym.trainers.pivots import Profiles, Yield, pivots_command, play_group, select
from agentgym.types import Sampling, Trajectory

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(toy_layer: dict[str, Any], tmp_path: Path) -> Config:
    del toy_layer["stages"]
    toy_layer["env"] |= {"size": 4, "max_steps": 8}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_layer), "utf-8")
    return load([tmp_path / "toy.yaml"])


def train_of(c: Config) -> list[Any]:
    return setup.tasks_of(c, c.splits.train)


def expert(c: Config, n: int | None = None) -> list[Trajectory]:
    return asyncio.run(trajectories_of(["expert"], c, train_of(c), n))


def profiled(c: Config, tmp_path: Path, **options: Any) -> tuple[Yield, list[dict[str, Any]], list[dict[str, Any]]]:
    """Profile the uniformly random policy; return the yield, the pivots, and the rows of all profiles."""
    given = {"trajectories": ["expert"], "target": "random", "rewards": ["functional_text"], "out": tmp_path / "p.jsonl"} | options
    found = pivots_command(c, **given)
    return found, list(read_lines(given["out"])), list(read_lines(given["out"].with_name("p.profiles.jsonl")))


# -------------------------------------------------------------------------------------------------------------------- decisions


def test_every_decision_with_the_way_there(config: Config) -> None:
    demos = expert(config)
    rows, reasons = asyncio.run(decisions(demos, config))
    assert not reasons and len(rows) == len({r["key"] for r in rows}) == sum(len(t.steps) for t in demos)
    t = demos[0]
    mine = [r for r in rows if r["task"]["id"] == t.task.id]
    for i, r in enumerate(mine):
        assert (r["index"], r["of"], r["task"]["seed"]) == (i, len(t.steps), t.task.seed)
        assert [h["action"] for h in r["start"]["history"]] == [s.action for s in t.steps[:i]]
        assert [h["observation"] for h in r["start"]["history"]] == [s.observation for s in t.steps[:i]]
        assert r["start"]["now"]["observation"] == t.steps[i].observation and t.steps[i].action in r["start"]["now"]["admissible"]
        assert r["start"]["info"] == {"state": t.steps[i].state, "task_type": t.info["task_type"], "goal": t.steps[0].observation}
        after = t.steps[i + 1].observation if i + 1 < len(t.steps) else t.final_observation
        assert r["expected"] == {"action": t.steps[i].action, "completion": t.steps[i].action, "observation": after}
    again, _ = asyncio.run(decisions([*demos, *demos], config))
    assert again == rows  # of equal decisions there is one


def test_only_what_succeeded_and_replays(config: Config) -> None:
    demos = expert(config, 6)
    lost = dataclasses.replace(demos[0], success=False)
    strange = dataclasses.replace(demos[1], steps=[dataclasses.replace(demos[1].steps[0], observation="Elsewhere."), *demos[1].steps[1:]])
    short = dataclasses.replace(demos[2], steps=demos[2].steps[:-1])
    ended = dataclasses.replace(demos[3], final_observation="You lose.")
    refused = dataclasses.replace(demos[4], steps=[dataclasses.replace(demos[4].steps[0], valid=False), *demos[4].steps[1:]])
    rows, reasons = asyncio.run(decisions([lost, strange, short, ended, refused, demos[5]], config))
    assert {r["task"]["id"] for r in rows} == {demos[4].task.id, demos[5].task.id}
    assert sum(r["task"]["id"] == demos[4].task.id for r in rows) == len(demos[4].steps) - 1
    first, second, third = reasons
    assert "after 0 actions the environment shows 'Your task" in first and "recorded was 'Elsewhere.'" in first
    assert f"it ended after {len(short.steps)} actions when it was recorded" in second and "You win.' now" in third
    with pytest.raises(DataError, match="none of 1 trajectories succeeded"):
        asyncio.run(decisions([lost], config))
    with pytest.raises(DataError, match=r"none of 1 successful trajectories can be replayed; the first, task .*Elsewhere"):
        asyncio.run(decisions([strange], config))


def test_another_action_format_is_refused(config: Config) -> None:
    other = dataclasses.replace(config, action=dataclasses.replace(config.action, name="tags"))
    with pytest.raises(DataError, match=r"the action format 'tags' reads \('.*', False\) in the completion .*set action= to that one"):
        asyncio.run(decisions(expert(config, 1), other))


def test_held_out_means_held_out(config: Config, tmp_path: Path) -> None:
    held_out = dataclasses.replace(config, splits=dataclasses.replace(config.splits, train="test", eval="train"))
    path = tmp_path / "test.jsonl.gz"
    store.write(path, expert(held_out))
    with pytest.raises(DataError, match=r"are of the split 'test'.*never trained on: give trajectories of the split 'train'"):
        profiled(config, tmp_path, trajectories=[str(path)])
    assert not (tmp_path / "p.jsonl").exists()
    disguised = [dataclasses.replace(t, task=dataclasses.replace(t.task, split="train")) for t in store.read(path)]
    with pytest.raises(DataError, match=r"of tasks that the split 'train' does not have"):
        check_training(disguised, config, train_of(config))


def test_where_trajectories_come_from(config: Config, tmp_path: Path) -> None:
    demos = expert(config, 4)
    for i, t in enumerate(demos):
        store.write(tmp_path / f"warm-{i}.jsonl.gz", [t])
    read = asyncio.run(trajectories_of([str(tmp_path / "warm-*.jsonl.gz")], config, train_of(config), None))
    assert read == demos
    assert asyncio.run(trajectories_of([str(tmp_path / "warm-2.jsonl.gz"), "expert"], config, train_of(config), 4)) == [demos[2], *demos]
    for source in ("nothing.jsonl", "hf"):
        with pytest.raises(ConfigError, match=r"there is no such file, and no policy of that name that plays without a model"):
            asyncio.run(trajectories_of([source], config, train_of(config), None))


# -------------------------------------------------------------------------------------------------------------------- profiles


def test_profiles_are_the_means_of_real_rollouts(config: Config, tmp_path: Path) -> None:
    found, kept, profiles = profiled(config, tmp_path, group=6)
    head, *rows = profiles
    assert head["settings"]["group"] == "6" and "functional_text" in head["settings"]["rewards"]
    by_key = {r["key"]: r for r in rows}
    assert len(by_key) == len(rows) == found.decisions == found.profiled and all(r["group"] == 6 and r["broken"] == 0 for r in rows)
    for r in rows:
        assert r["mean"] * 6 == pytest.approx(round(r["mean"] * 6)) and r["variance"] == pytest.approx(r["mean"] * (1 - r["mean"]))
    assert {r["key"] for r in kept} == {k for k, r in by_key.items() if 0 < r["mean"] < 0.6}
    assert found.pivots == len(kept) > 5 and found.always + found.never + found.easy + found.pivots == found.profiled
    assert all(r["group"] == 6 and r["mean"] == by_key[r["key"]]["mean"] for r in kept)
    # The profile of one of them, by hand: the same seeds, the same rollouts.
    agent = Agent(registry.bind("policy", "random")(), registry.bind("context", "full"), registry.bind("action", "plain"), Sampling())
    agent.rewards = {"functional_text": registry.bind("reward", "functional_text")}
    gym = Gym(setup.make_env(config, "train"), concurrency=4)
    group = asyncio.run(play_group(gym, agent, registry.bind("explore", "branch"), config.run.seed, 6, kept[3]))
    assert sum(t.outcome for t in group) / 6 == kept[3]["mean"] and all(len(t.steps) == 1 for t in group)
    assert [t.outcome for t in group] == [float(t.steps[0].action == kept[3]["expected"]["action"]) for t in group]


def test_what_is_kept_and_what_is_not(tmp_path: Path) -> None:
    """By hand, five rollouts each: σ² = 0 twice, μ on the border, above it, and two pivots."""
    means = {"all": 1.0, "none": 0.0, "border": 0.6, "easy": 0.8, "low": 0.2, "half": 0.4}
    profiles = Profiles(tmp_path / "x.profiles.jsonl", {})
    profiles.rows = {k: {"key": k, "task": "t", "index": 0, "group": 5, "broken": 1, "mean": m, "variance": m * (1 - m)} for k, m in means.items()}
    profiles.broken = 5
    rows: list[dict[str, Any]] = [{"key": k, "task": {"id": "t"}} for k in [*means, "unprofiled"]]
    found = select(rows, profiles, 0.6, tmp_path / "x.jsonl")
    assert found == Yield(7, 6, always=1, never=1, easy=2, pivots=2, broken=11, max_mean=0.6)
    assert [(r["key"], r["task"], r["mean"]) for r in read_lines(tmp_path / "x.jsonl")] == [("low", {"id": "t"}, 0.2), ("half", {"id": "t"}, 0.4)]
    said = str(found)
    assert "7 decisions, 1 could not be profiled: no spread 33.3% (always right 16.7%, never 16.7%), too easy (mean ≥ 0.6) 33.3%, pivots 2" in said
    assert select(rows, profiles, 0.9, tmp_path / "x.jsonl").pivots == 4
    with pytest.raises(DataError, match=r"there is no pivot: 7 decisions.*warm start"):
        select(rows, profiles, 0.1, tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_a_killed_call_goes_on_and_comes_to_the_same(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.rollout.concurrency = 16  # two decisions a batch
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    _, whole, all_profiles = profiled(config, tmp_path / "a", group=8)
    add, played = Profiles.add, []

    def killed(self: Profiles, rows: Any) -> None:
        add(self, rows)
        if len(self.rows) >= 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(Profiles, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            profiled(config, tmp_path / "b", group=8)
    path = tmp_path / "b" / "p.profiles.jsonl"
    assert not (tmp_path / "b" / "p.jsonl").exists() and len(list(read_lines(path))) == 1 + 6
    path.write_bytes(path.read_bytes()[:-20])  # the last line is torn

    async def counted(gym: Gym, agent: Agent, explore: Any, seed: int, size: int, row: Any) -> Any:
        played.append(row["key"])
        return await play_group(gym, agent, explore, seed, size, row)

    monkeypatch.setattr(command, "play_group", counted)
    _, again, profiles = profiled(config, tmp_path / "b", group=8)
    assert again == whole and profiles == all_profiles and len(played) == len(set(played)) == len(all_profiles) - 1 - 5
    played.clear()
    assert profiled(config, tmp_path / "b", group=8, max_mean=0.9)[0].pivots > len(whole) and not played  # another λ needs no rollout
    with pytest.raises(DataError, match=r"made with other settings \(group: '8' there, '4' here\)\. Take another --out"):
        profiled(config, tmp_path / "b", group=4)


def test_a_folder_with_other_weights_is_another_policy(config: Config, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = command._settings(config, str(tmp_path), 8)
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert command._settings(config, str(tmp_path), 8)["policy"] != before["policy"]


def test_broken_rollouts_are_counted_and_never_scored(config: Config, tmp_path: Path) -> None:
    config.env.options["fail_rate"] = 0.3  # the first step of an episode breaks, for some actions
    found, kept, (_, *rows) = profiled(config, tmp_path, group=8)
    assert found.broken > sum(r["broken"] for r in rows) > 0 and 0 < found.profiled == len(rows) < found.decisions  # one rollout makes no profile
    some = [r for r in rows if r["broken"]]
    assert some and all(r["group"] == 8 - r["broken"] >= 2 and r["index"] == 0 for r in some)
    assert all(r["mean"] * r["group"] == pytest.approx(round(r["mean"] * r["group"])) for r in some)  # over the whole rollouts alone
    assert {r["group"] for r in kept if r["broken"]} <= {r["group"] for r in some}
    with pytest.raises(PolicyError, match="every rollout broke, so nothing was measured; the first: ConfigError: a functional reward"):
        broken_reward(config, tmp_path / "q.jsonl")


def broken_reward(config: Config, out: Path) -> None:
    """A reward that cannot judge these decisions is no reward of 0."""
    file = out.with_name("judge.py")
    file.write_text(
        "from agentgym.errors import ConfigError\ndef judge(trajectory) -> float:\n    raise ConfigError('a functional reward that cannot')\n",
        "utf-8",
    )
    pivots_command(config, trajectories=["expert"], target="random", rewards=[f"{file}:judge"], out=out)


# --------------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def run(command: Run) -> Run:
    """Run a command in this process; return (exit code, stdout with single blanks, stderr)."""

    def run(*args: str) -> tuple[int, str, str]:
        code, out, err = command(*args)
        return code, " ".join(out.split()), err

    return run


def test_from_the_command_to_a_trained_update(config: Config, run: Run, tmp_path: Path) -> None:
    code, out, err = run("pivots", "toy.yaml", "pivotrl", "--trajectories", "expert", "--policy", "random", "--out", "p.jsonl")
    assert code == 0, err
    assert "policy random: " in out and "too easy" in out and "sampler=pivots sampler.file=p.jsonl" in out
    small = ["rollout.tasks=24", "rollout.group_size=3", "update.count=2", "run.dir=r", "run.trajectories_every=1", "eval.show=0", "eval.tasks=2"]
    code, out, err = run("run", "toy.yaml", "pivotrl", "sampler.file=p.jsonl", *small)
    assert code == 0, err
    groups: dict[str, list[Trajectory]] = {}
    for t in store.read(tmp_path / "r" / "trajectories" / "rl-000001.jsonl.gz"):
        groups.setdefault(t.group, []).append(t)
    assert len(groups) == 24 and all(len(g) == 3 for g in groups.values())
    starts = [{json.dumps(t.task.data["start"]) for t in g} for g in groups.values()]
    assert all(len(s) == 1 for s in starts) and len(set.union(*starts)) == 24  # a group is one decision
    assert len({g[0].task.id for g in groups.values()}) < 24  # though some decisions are of the same task
    for t in (t for g in groups.values() for t in g):
        assert len(t.steps) == 1 and set(t.rewards) == {"env", "functional_alfworld"} and t.rewards["env"] == 0.0
        assert t.outcome == t.rewards["functional_alfworld"] in (0.0, 1.0) and t.success == bool(t.outcome)
    rows = [r for r in read_lines(tmp_path / "r" / "metrics.jsonl") if "loss" in r]
    assert len(rows) == 2 and all(r["rollout/turns"] == 72 and r["rollout/errors"] == 0 for r in rows)
    summary = json.loads((tmp_path / "r" / "summary.json").read_text("utf-8"))
    assert summary["updates"] == 2 and summary["eval"]["final"]["errors"] == 0 and summary["eval"]["final"]["mean_steps"] > 1  # whole episodes


def test_a_run_profiles_itself_again(config: Config, run: Run, tmp_path: Path) -> None:
    """A model's folder as the policy, from its own trajectories' file; here a model that was just made, which knows nothing."""
    from agentgym.trainers.model import load_model, save_model

    store.write(tmp_path / "demos.jsonl.gz", expert(config, 2))
    model, tokenizer = load_model(
        "tiny", corpus=setup.corpus(config), seed=0, layers=1, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, vocab=320
    )
    save_model(model, tokenizer, tmp_path / "m")
    command = ["pivots", "toy.yaml", "--trajectories", "demos.jsonl.gz", "--policy", "m", "--reward", "functional_text", "--group", "2"]
    code, _, err = run(*command, "--out", "mine/p.jsonl")
    assert code == 1 and "error: there is no pivot" in err and "never 100.0%" in err and "warm start" in err
    assert len(list(read_lines(tmp_path / "mine" / "p.profiles.jsonl"))) > 2


@pytest.mark.parametrize(
    "args, message",
    [
        (["a=b"], r"which task set\? For example: agentgym pivots tasks/alfworld\.yaml"),
        (["toy.yaml"], r"which reward says .*--reward NAME \(functional_alfworld, .*functional_webshop, or your own\), or the recipe pivotrl"),
        (["toy.yaml", "--reward", "functional_txt"], r"no reward named 'functional_txt'\. Did you mean 'functional_text'"),
        (["toy.yaml", "pivotrl", "--group", "1"], r"--group is 1; a variance takes at least 2"),
        (["toy.yaml", "pivotrl", "--max-mean", "0"], r"--max-mean is 0"),
        (["toy.yaml", "pivotrl", "--out", "p.jsonl.gz"], r"plain JSON lines"),
        (["toy.yaml", "pivotrl", "explore.turns=0"], r"explore\.turns is 0"),
    ],
)
def test_what_is_refused(config: Config, run: Run, args: list[str], message: str) -> None:
    code, _, err = run("pivots", *args, "--trajectories", "expert", "--policy", "random")
    assert code == 1 and re.search(message, err), err


def test_the_recipe_says_what_it_lacks(config: Config, run: Run) -> None:
    code, _, err = run("run", "toy.yaml", "pivotrl", "run.dir=r")
    assert code == 1 and "error: sampler 'pivots' needs its file: sampler.file=FILE" in err
