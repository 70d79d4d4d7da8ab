"""Engines: they play as this process would, they are replaced when they are lost, and they never run far ahead of their trainer."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import agentgym.trainers.cluster._fleet as module
from agentgym import registry
from agentgym.config import Config, build, merge, normalise
from agentgym.errors import ConfigError, LostError, PolicyError
from agentgym.rollout import Gym, collect
from agentgym.trainers import setup
from agentgym.trainers.cluster._ahead import FleetAhead
from agentgym.trainers.cluster._fleet import Fleet
from agentgym.trainers.cluster._open import open_fleet
from agentgym.trainers.model import end_ids, load_model
from agentgym.types import Trajectory

B, S = 2, 2
EXPLORE = registry.bind("explore", "independent", {})


def configure(env: str, cluster: dict[str, Any], *layers: dict[str, Any]) -> Config:
    toy = next(m for n, m in sys.modules.items() if n.endswith("conftest") and hasattr(m, "TOY")).TOY
    merged: dict[str, Any] = {}
    here = {"env": {"name": env, "size": 3, "max_steps": 6}, "cluster": cluster, "rollout": {"tasks": B, "group_size": 2, "max_tokens": 12}}
    for layer in (toy, {"stages": None, "credit": "gigpo", "objectives": {"clip": {}}}, here, *layers):
        merged = merge(merged, normalise(layer, "test"))
    return build(merged)


class World:
    """A fleet of two engines and a trainer that takes no gradients."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.model, self.tokenizer = load_model("tiny", corpus=setup.corpus(config), seed=0, **config.model.options)
        self.tasks = setup.tasks_of(config, "train")
        self.said: list[str] = []
        fleet = open_fleet(config, self.model, self.tokenizer, alone=True, say=self.said.append)
        assert fleet is not None
        self.fleet: Fleet = fleet

    def pids(self) -> list[int]:
        end = time.monotonic() + 60
        while True:
            assert time.monotonic() < end, self.said
            self.fleet.check()
            try:
                return [link.place.call("where").result(120)[1] for link in list(self.fleet.links)]
            except LostError:  # one that is about to be replaced
                time.sleep(0.05)

    def groups(self, gym: Gym, agent: Any, n: int = 4, key: str = "g") -> list[list[Trajectory]]:
        keyed = [(f"{key}{i}", t, 100 + i) for i, t in enumerate(self.tasks[:n])]
        return asyncio.run(asyncio.wait_for(collect(gym, agent, keyed, EXPLORE, size=2), 120))

    def here(self, version: int = 0, n: int = 4) -> list[list[Trajectory]]:
        """Play in this process."""
        from agentgym.renderer import Renderer

        renderer = Renderer(self.tokenizer, stop_ids=end_ids(self.model))
        policy = setup.make_policy(self.config.policy, copy.deepcopy(self.model), renderer)
        policy.load(None, version)
        gym = Gym(setup.make_env(self.config, "train"), concurrency=64)
        return self.groups(gym, setup.make_agent(self.config, policy, renderer), n)

    def there(self, n: int = 4) -> list[list[Trajectory]]:
        """Play in the engines."""
        return self.groups(self.fleet.gym(self.config, "train", "rl"), None, n)

    def shake(self, version: int) -> None:
        with torch.no_grad():
            for p in self.model.parameters():
                p.add_(0.05 * torch.randn_like(p))
        self.fleet.load(version)


def same(a: list[list[Trajectory]], b: list[list[Trajectory]]) -> None:
    """Check that two lists of groups hold the same episodes; log-probabilities may differ by the rounding of another batch."""
    left, right = copy.deepcopy(a), copy.deepcopy(b)
    for t, u in zip((t for g in left for t in g), (t for g in right for t in g), strict=True):
        for s, r in zip(t.steps, u.steps, strict=True):
            assert s.completion.logprobs == pytest.approx(r.completion.logprobs, abs=1e-5)
            s.completion.logprobs = r.completion.logprobs = None
        assert t == u


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def shared(request: pytest.FixtureRequest, obedient: str, alive: Callable[[int], bool], wait_until: Callable[..., Any]) -> Iterator[World]:
    if request.param == "ray":
        request.getfixturevalue("local_ray")
    cluster = {"name": request.param, "engines": {"number": 2, "cpus": 0.5}, "envs": {"number": 1, "cpus": 0.5, "concurrency": 8}}
    world = World(configure(obedient, cluster))
    yield world
    pids = [*world.pids(), *(w.call("where").result(60)[1] for w in world.fleet._workers)]
    world.fleet.close()
    world.fleet.close()
    wait_until(lambda: not any(map(alive, pids)), 15)


@pytest.fixture
def world(shared: World) -> World:
    shared.fleet.check()
    shared.fleet.metrics()
    for link in shared.fleet.links:
        link.deaths = 0
    return shared


def test_the_same_seeds_give_the_same_trajectories_as_in_this_process(world: World) -> None:
    """With the environments in a third process."""
    mine = world.here(world.fleet.version)
    same(world.there(), mine)
    m = world.fleet.metrics()
    assert m["cluster/episodes_lost"] == m["cluster/restarts"] == 0 and 200 < m["cluster/trajectory_bytes"] < 3000
    assert {t.status.value for g in mine for t in g} == {"truncated", "terminated"} or len(mine) == 4


def test_new_weights_are_there_before_the_next_episode(world: World) -> None:
    for version in (7, 8):
        world.shake(version)
        found = world.there(2)
        assert {s.completion.version for g in found for t in g for s in t.steps} == {version}
        same(found, world.here(version, 2))
    assert world.fleet.metrics()["cluster/put_mb"] == pytest.approx(2 * 4 * sum(p.numel() for p in world.model.parameters()) / 1e6, rel=0.1)


def test_an_engine_that_is_killed_is_replaced_and_its_episodes_are_played_again(world: World, alive: Callable[[int], bool]) -> None:
    mine = world.here(world.fleet.version, 4)
    before = world.pids()
    play = world.fleet._play

    def shoot(link: Any, jobs: Any) -> None:
        play(link, jobs)
        if link.index == 1 and not shot:
            shot.append(os.kill(before[1], signal.SIGKILL))

    shot: list[Any] = []
    world.fleet._play = shoot  # type: ignore[method-assign]
    try:
        found = world.there(4)
    finally:
        world.fleet._play = play  # type: ignore[method-assign]
    same(found, mine)
    m = world.fleet.metrics()
    assert m["cluster/restarts"] == 1 and m["cluster/episodes_lost"] == 4
    assert "engine-1" in world.said[-1] and "another one takes its place, and 4 episodes are played again" in world.said[-1]
    after = world.pids()
    assert after[0] == before[0] and after[1] != before[1] and not alive(before[1])


def test_a_worker_that_is_killed_costs_its_episodes_which_are_played_again(world: World) -> None:
    mine = world.here(world.fleet.version, 4)
    pid = world.fleet._workers[0].call("where").result(60)[1]
    flush = world.fleet._flush

    def shoot() -> None:
        flush()
        os.kill(pid, signal.SIGKILL)

    world.fleet._flush = shoot  # type: ignore[method-assign]
    try:
        found = world.there(4)
    finally:
        world.fleet._flush = flush  # type: ignore[method-assign]
    assert sum(not t.failed for g in found for t in g) == 8
    same(found, mine)
    world.there(1)  # the engines say it with their next news
    assert world.fleet.metrics()["cluster/episodes_again"] >= 1


@pytest.mark.slow
def test_one_that_hangs_is_ended(world: World, alive: Callable[[int], bool]) -> None:
    pids = world.pids()
    patience, looks = world.fleet._patience, module._LOOK
    os.kill(pids[0], signal.SIGSTOP)
    world.fleet._patience, module._LOOK = 0.3, 0.1
    try:
        end = time.monotonic() + 60
        while not any("engine-0 gave no sign of life" in x for x in world.said):
            assert time.monotonic() < end, world.said
            time.sleep(0.05)
    finally:
        world.fleet._patience, module._LOOK = patience, looks
    assert world.pids()[0] != pids[0] and not alive(pids[0])


def ahead_of(world: World) -> FleetAhead:
    config = copy.deepcopy(world.config)
    sampler = registry.bind("sampler", "uniform", {})(world.tasks, 0)
    ahead = FleetAhead(world.fleet, config, "rl", world.model, world.tokenizer, sampler.take, say=world.said.append)
    ahead.max_staleness = S
    return ahead


def test_engines_that_are_ahead_wait_for_their_trainer(world: World) -> None:
    """Back-pressure: (S + 1) · B groups are played at most, then nothing more; then as many as were taken."""
    ahead = ahead_of(world)
    ahead._lead = (S + 1) * B
    world.fleet.load(20)
    ahead.start(20)
    started: list[int] = []
    tell = world.fleet.tell
    world.fleet.tell = lambda who, method, *a: (started.extend(j[0] for j in a[-1]) if method == "play_groups" else None, tell(who, method, *a))[1]  # type: ignore[method-assign,misc,assignment]
    try:
        end = time.monotonic() + 60
        while len(ahead._ready) < (S + 1) * B:
            assert time.monotonic() < end
            ahead._receive()
            time.sleep(0.02)
        time.sleep(0.3)
        ahead._receive()
        assert len(ahead.pending()) == len(ahead._ready) == (S + 1) * B and not started
        seen: set[str] = set()
        for version in range(21, 25):
            groups = asyncio.run(asyncio.wait_for(ahead.next(B), 60))
            keys = {g[0].group for g in groups}
            assert len(groups) == B == len(keys) and not keys & seen and not any(t.failed for g in groups for t in g)
            ages = [ahead.version - v for g in groups for t in g for s in t.steps for v in _versions(s.completion.version)]
            assert min(ages) >= 0 and max(ages) <= S
            seen |= keys
            world.shake(version)
            ahead.publish(version)
            assert len(ahead.pending()) <= (S + 1) * B
        assert started
    finally:
        world.fleet.tell = tell  # type: ignore[method-assign]
        ahead.close()
    world.there(1)  # the engines are free for others


def _versions(version: int | list[int]) -> list[int]:
    return version if isinstance(version, list) else [version]


@pytest.mark.slow
def test_groups_of_a_killed_engine_are_played_again_under_the_same_seeds(world: World) -> None:
    world.fleet.load(30)
    ahead = ahead_of(world)
    pid = world.pids()[0]
    ahead.start(30)
    try:
        before = {j.key: j.seed for j in ahead.pending()}
        os.kill(pid, signal.SIGKILL)
        found = {g[0].group: g for _ in range(2) for g in asyncio.run(asyncio.wait_for(ahead.next(B), 90))}
        assert set(before) <= set(found) | {j.key for j in ahead.pending()}
        assert ahead.metrics()["rollout/restarts"] == 1 and world.fleet.metrics()["cluster/restarts"] == 1
    finally:
        ahead.close()


def test_one_that_keeps_dying_ends_the_run_with_a_word(obedient: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IN_A_ROW", 0)
    world = World(configure(obedient, {"name": "local", "engines": {"number": 1}}))
    try:
        os.kill(world.fleet.links[0].place.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(
            PolicyError, match=r"engine-0 died \(exit code -9; -9 is often.*, 1 times in a row\. Go on with `agentgym resume RUN_DIR`"
        ):
            world.there(1)
        with pytest.raises(PolicyError, match="engine-0 died"):
            world.fleet.check()
    finally:
        world.fleet.close()


@pytest.mark.parametrize(
    "cluster, layer, message",
    [
        ({"engines": {"number": 1}}, {"run": {"workers": 2}}, r"run.workers=2 shares one model in the memory of one machine; .*use run.workers=1"),
        ({"envs": {"number": 1}}, {"rollout": {"max_staleness": 1}}, r"with cluster.envs it needs cluster.engines.number of at least 1"),
        ({"engines": {"number": 3}, "envs": {"number": 1, "concurrency": 2}}, {}, r"room for 2 environments in all, too few for 3 engines"),
    ],
)
def test_what_does_not_fit_together_is_refused(obedient: str, cluster: dict[str, Any], layer: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_fleet(configure(obedient, cluster, layer), None, None, alone=True, say=print)  # type: ignore[arg-type]


def test_a_sharded_model_and_a_policy_that_has_to_be_alone_are_refused(obedient: str) -> None:
    with pytest.raises(ConfigError, match="one trainer with a whole model"):
        open_fleet(configure(obedient, {"envs": {"number": 1}}), None, None, alone=False, say=print)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"policy 'vllm' works in one process: set cluster.engines.number to 0 or 1"):
        open_fleet(configure(obedient, {"engines": {"number": 2}}, {"policy": "vllm"}), None, None, alone=True, say=print)  # type: ignore[arg-type]


def test_without_engines_and_workers_nothing_is_placed(obedient: str) -> None:
    assert open_fleet(configure(obedient, {"name": "local"}), None, None, alone=True, say=print) is None  # type: ignore[arg-type]
