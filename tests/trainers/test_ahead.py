"""Asynchronous rollouts: no token too old, none torn, none lost or learnt from twice, and nobody waits for the slow or the dead."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import agentgym.trainers.ahead as module
from agentgym import registry
from agentgym.config import Config, build, merge, normalise
from agentgym.errors import ConfigError, PolicyError
from agentgym.trainers import setup
from agentgym.trainers._generator import Published, _Generator, trainable
from agentgym.trainers._seat import Seat
from agentgym.trainers.ahead import Ahead, goes_ahead
from agentgym.trainers.batch import pack
from agentgym.trainers.checkpoint import _check_plain
from agentgym.trainers.model import load_model
from agentgym.trainers.streams import score
from agentgym.types import Trajectory

# The toy environment; how long a step of which task takes, and how long the last observation is, is read from a file at every step.
PACED = """
import json, time
from pathlib import Path
from agentgym.envs.toy import toy

class paced(toy):
    def __init__(self, *, control: str, size: int = 5, max_steps: int = 6, split: str = "train") -> None:
        super().__init__(size=size, max_steps=max_steps, split=split)
        self.control, self.blocking = Path(control), True

    def step(self, action):
        begun = time.monotonic()
        while True:
            rules = json.loads(self.control.read_text())
            if time.monotonic() - begun >= rules.get(self.task, rules["*"]):
                break
            time.sleep(0.02)
        seen, reward, terminated, truncated, info = super().step(action)
        return seen + "x" * rules["length"] * (terminated or truncated), reward, terminated, truncated, info
"""
B, S = 2, 8


def configure(folder: Path, *layers: dict[str, Any]) -> Config:
    toy = next(m for n, m in sys.modules.items() if n.endswith("conftest") and hasattr(m, "TOY")).TOY
    (folder / "paced.py").write_text(PACED)
    paced = {
        "env": {"name": f"{folder / 'paced.py'}:paced", "control": str(folder / "pace.json")},
        "rollout": {"tasks": B, "group_size": 2, "max_tokens": 12, "max_staleness": S},
    }
    merged: dict[str, Any] = {}
    for layer in (toy, {"env": {"name": "toy"}}, paced, {"run": {"dir": str(folder / "run")}}, *layers):
        merged = merge(merged, normalise(layer, "test"))
    return build(merged)


class World:
    """A trainer that takes no gradients: its weights jump at random."""

    def __init__(self, folder: Path, *layers: dict[str, Any]) -> None:
        self.control = folder / "pace.json"
        self.pace()
        self.config = configure(folder, *layers)
        self.model, self.tokenizer = load_model("tiny", corpus=setup.corpus(self.config), seed=0, **self.config.model.options)
        self.sampler = registry.bind("sampler", "uniform", {})(setup.tasks_of(self.config, "train"), 0)
        self.said: list[str] = []
        self.ahead = Ahead(self.config, "rl", self.model, self.tokenizer, self.sampler.take, say=self.said.append)
        self.weights = {0: copy.deepcopy(self.model.state_dict())}
        self.seen: set[str] = set()
        self.bound = S

    def pace(self, everybody: float = 0.0, length: int = 0, **tasks: float) -> None:
        """Say how many seconds a step takes."""
        partial = self.control.with_suffix(".tmp")
        partial.write_text(json.dumps({"*": everybody, "length": length, **tasks}))
        partial.replace(self.control)

    async def next(self, n: int = B) -> list[list[Trajectory]]:
        """Take groups as a trainer does, and check what always holds of them."""
        ahead = self.ahead
        groups = await asyncio.wait_for(ahead.next(n), 60)
        keys = {g[0].group for g in groups}
        assert len(groups) == n == len(keys) and not keys & self.seen, "a group came twice"
        self.seen |= keys
        assert all(len(g) == 2 and len({t.group for t in g}) == 1 and not t.failed for g in groups for t in g)
        ages = [ahead.version - v for g in groups for t in g for v in versions(t)]
        assert min(ages) >= 0 and max(ages) <= ahead.max_staleness
        self.check_bound()
        return groups

    def publish(self) -> None:
        """Take a step of training."""
        with torch.no_grad():
            for p in self.model.parameters():
                p.add_(0.03 * torch.randn_like(p))
        self.ahead.publish(self.ahead.version + 1)
        self.weights[self.ahead.version] = copy.deepcopy(self.model.state_dict())
        self.check_bound()

    def check_bound(self) -> None:
        assert len(self.ahead.pending()) <= (self.bound + 1) * B

    def under_way(self) -> dict[str, str]:
        """Return key → task id of the groups that are being played."""
        return {j.key: j.task.id for s in self.ahead._seats for j in s.jobs.values()}

    def error(self, episode: Trajectory, shift: int = 0) -> float:
        """Return how far the log-probabilities are from those under the version that each token carries (plus `shift`)."""
        batch = pack([episode], discount=1.0)
        twin, worst = copy.deepcopy(self.model), 0.0
        for v in set(versions(episode)):
            twin.load_state_dict(self.weights[min(v + shift, max(self.weights))])
            mine = batch.sampled & (batch.version == v)
            found = score(twin, batch, temperature=1.0, budget=4096)[0]
            assert batch.logp_old is not None
            worst = max(worst, float((found - batch.logp_old)[mine].abs().max()))
        return worst


def versions(t: Trajectory) -> list[int]:
    return [v for s in t.steps for v in (s.completion.version if isinstance(s.completion.version, list) else [s.completion.version])]


def wait_until(happens: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.01)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One generator for most of the tests: it takes seconds to start."""
    world = World(tmp_path_factory.mktemp("ahead"))
    world.ahead.start(0)
    yield world
    processes = [s.process for s in world.ahead._seats]
    world.pace(3600.0)  # it ends all the same, in the middle of its episodes
    started = time.monotonic()
    world.ahead.close()
    world.ahead.close()
    assert [p.exitcode for p in processes] == [0] and time.monotonic() - started < 15 and not any(running(p.pid) for p in processes if p.pid)


@pytest.fixture
def world(shared: World) -> World:
    """The shared one, with nothing under way."""
    shared.pace()
    wait_until(lambda: shared.ahead._receive() or not shared.under_way())
    shared.ahead._ready.clear()
    shared.ahead.max_staleness, shared.ahead._lead, shared.bound = S, 2 * B, S
    shared.ahead.metrics()
    return shared


def go(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


# ---------------------------------------------------------------------------------------------------------------- weights and versions


def test_weights_change_inside_a_turn_and_every_token_is_exactly_its_versions(world: World) -> None:
    """Log-probabilities against plain forward passes under the version that each token carries, over its whole context."""
    mixed: list[Trajectory] = []  # with a swap inside a turn
    later: list[Trajectory] = []  # of these: with a turn before it that had older weights still

    async def work() -> None:
        while len(later) < 2:
            for t in (t for g in await world.next() for t in g):
                assert versions(t) == sorted(versions(t))
                found = [v for s in t.steps if isinstance(v := s.completion.version, list)]
                mixed.extend([t] if found else [])
                later.extend([t] if any(v[0] > versions(t)[0] for v in found) else [])
            await asyncio.sleep(random.random() * 0.03)
            world.publish()

    go(work())
    assert any(isinstance(s.completion.version, int) for t in mixed for s in t.steps)
    assert max(world.error(t) for t in mixed) < 1e-4
    assert min(world.error(t, shift=1) for t in mixed) > 1e-2  # and the test would see it


def test_weights_are_never_torn(tmp_path: Path) -> None:
    """A generator that takes weights as fast as it can, from a trainer that writes as fast as it can: 8 MB, all one number per version."""
    world = World(tmp_path, {"model": {"hidden": 256, "ffn": 1024, "layers": 2}})
    params, lock = trainable(world.model), module.mp.get_context("fork").Lock()
    published, counted = Published(params), torch.zeros(2, dtype=torch.int64).share_memory_()
    with torch.no_grad():
        published.write([p.zero_() for p in params], 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            g = _Generator(None, published, lock, world.config, "rl", world.model, world.tokenizer)
            while g.version < 1_000_000:
                g.refresh()
                counted[0] += 1
                counted[1] += any(p.min() != g.version or p.max() != g.version for p in g.params)
            code = 0
        finally:
            os._exit(code)
    versions = 0
    while int(counted[0]) < 50 or versions < 50:
        versions += 1
        with lock, torch.no_grad():
            published.write([p.fill_(versions) for p in params], versions)
    with lock, torch.no_grad():
        published.write([p.fill_(1_000_000) for p in params], 1_000_000)
    assert os.waitpid(child, 0)[1] == 0 and int(counted[1]) == 0


def test_what_does_not_change_is_neither_published_nor_copied(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    world = World(tmp_path, {"model": {"lora": {"r": 2}}})
    theirs = copy.deepcopy(world.model)
    for p, q in zip(theirs.parameters(), world.model.parameters(), strict=True):
        p.data = q.data  # as in another process: the same memory
    params = trainable(world.model)
    published = Published(params)
    assert 0 < published._flat.numel() < 0.2 * sum(p.numel() * 4 for p in world.model.parameters())
    with torch.no_grad():
        for p in params:
            p.normal_()
    published.write(params, 7)
    generator = _Generator(None, published, module.mp.get_context("fork").Lock(), world.config, "rl", theirs, world.tokenizer)
    generator.refresh()
    assert generator.version == generator.policy.policy.version == 7  # type: ignore[attr-defined]
    for p, q in zip(theirs.parameters(), world.model.parameters(), strict=True):
        assert torch.equal(p, q) and (p.data_ptr() == q.data_ptr()) == (not q.requires_grad)


# ------------------------------------------------------------------------------------------------------------- the bound, and the slow


@pytest.mark.parametrize("bound", [1, 3])
def test_nothing_is_older_than_the_bound_over_many_updates(world: World, bound: int) -> None:
    """World.next and publish check age, bound of admission and that nothing comes twice; here an environment and a trainer of changing speed."""
    world.ahead.max_staleness = world.bound = bound
    rng = random.Random(bound)

    async def work() -> None:
        for _ in range(12):
            world.pace(rng.choice([0.0, 0.0, 0.02]))
            for _ in range(rng.choice([1, 1, 1, 2])):  # now and then twice as many, as dynamic sampling asks for
                await world.next()
            time.sleep(rng.choice([0.0, 0.05]))  # no await: the event loop stands still as in an update
            world.publish()

    go(work())
    assert {"rollout/ahead", "rollout/stale_dropped", "rollout/restarts", "rollout/seconds_waited"} == set(world.ahead.metrics())


def test_a_slow_episode_blocks_nobody(world: World) -> None:
    async def work() -> None:
        await world.next()
        world.publish()
        slow = world.under_way()
        assert len(slow) >= B
        world.pace(0.0, **dict.fromkeys(slow.values(), 3600.0))  # all that are under way, so that only new ones can come
        for _ in range(5):
            await world.next()
            world.publish()
        assert set(slow) & set(world.under_way())

    go(work())


def test_what_got_too_old_is_dropped_and_counted(world: World) -> None:
    """By the trainer, when it arrives too late; by the generator, when it can only arrive too late."""

    async def held_up() -> set[str]:
        await world.next()
        world.publish()
        wait_until(lambda: world.under_way() or world.ahead._receive())
        slow = world.under_way()
        world.pace(0.0, **dict.fromkeys(slow.values(), 3600.0))
        await asyncio.sleep(0.2)  # their first turns, so that they hold tokens
        await world.next()
        return {k for k in world.under_way() if k in slow}

    async def work() -> None:
        slow = await held_up()
        assert slow
        world.ahead.max_staleness = 1
        for _ in range(2):
            world.publish()
        assert slow <= set(world.under_way())
        world.ahead.metrics()
        world.pace()
        arrived = world.ahead._arrived
        wait_until(lambda: world.ahead._receive() or ((not slow & set(world.under_way())) and world.ahead._arrived > arrived))
        assert world.ahead.metrics()["rollout/stale_dropped"] >= len(slow)
        for _ in range(3):
            assert not {g[0].group for g in await world.next()} & slow
            world.publish()

        world.ahead.max_staleness = S
        slow = await held_up()
        assert slow
        world.ahead.metrics()
        for _ in range(S + 1):
            world.publish()
        wait_until(lambda: world.ahead._receive() or not slow & set(world.under_way()))  # though their steps still take an hour
        assert world.ahead.metrics()["rollout/stale_dropped"] >= len(slow)

    go(work())


def test_generators_that_are_ahead_wait(world: World) -> None:
    """Back-pressure: what may be admitted is played, and then nothing more."""
    world.ahead._lead = (S + 1) * B
    world.publish()
    assert len(world.ahead.pending()) == (S + 1) * B
    wait_until(lambda: world.ahead._receive() or not world.under_way())
    arrived = world.ahead._arrived
    time.sleep(0.3)
    world.ahead._receive()
    assert world.ahead._arrived == arrived and len(world.ahead.pending()) == len(world.ahead._ready) == (S + 1) * B
    leads = []
    for _ in range(S):
        go(world.next())  # type: ignore[arg-type]
        world.publish()
        leads.append(world.ahead._lead)
    assert leads[0] == S * B and min(leads) >= 2 * B  # a whole batch would lie and age: not so far ahead


def test_a_trainer_that_computes_stops_nobody_and_large_groups_fill_no_pipe(world: World) -> None:
    world.ahead._lead = (S + 1) * B
    world.pace(length=2_000_000)
    world.publish()
    assert len(world.under_way()) == (S + 1) * B
    wait_until(lambda: world.ahead._inbox.qsize() >= S * B)  # 4 MB each, and nobody takes them from the event loop
    go(world.next(S * B))  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------------------------- the dead


def test_a_killed_generator_is_replaced_and_nothing_is_lost_or_learnt_twice(world: World) -> None:
    async def work() -> None:
        await world.next()
        world.publish()
        world.pace(0.05)
        before = {j.key: j.seed for j in world.ahead.pending()}
        victim = world.ahead._seats[0].process.pid
        assert victim
        os.kill(victim, signal.SIGKILL)
        found = [g[0].group for _ in range(3) for g in await world.next()]
        assert world.ahead.metrics()["rollout/restarts"] == 1
        assert set(before) - set(found) <= {j.key for j in world.ahead.pending()}
        assert all(before[j.key] == j.seed for j in world.ahead.pending() if j.key in before)
        assert world.ahead._seats[0].process.pid != victim and not running(victim)
        assert "agentgym-generator-1 died (exit code -9" in world.said[-1] and "groups are played again" in world.said[-1]

    go(work())


@pytest.mark.parametrize("deaths", [2, 99])
def test_one_that_keeps_dying_ends_the_run_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int) -> None:
    """A group that sees two deaths counts as broken, since it may be what kills; and without any group finished, four deaths are enough."""
    monkeypatch.setattr(module, "_DEATHS", deaths)
    world = World(tmp_path)
    world.ahead.start(0)
    killed: list[int] = []

    async def work() -> None:
        waiting = asyncio.ensure_future(world.ahead.next(B))
        while not waiting.done():
            pid = world.ahead._seats[0].process.pid
            if pid and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            await asyncio.sleep(0.01)
        await waiting

    broken = r"all 4 episodes failed; the first: PolicyError: .*-generator-1 died \(exit code -9.*while it played this group, for the second time"
    end = r"generator-1 died \(exit code -9; -9 is often the system.*\), 4 times in a row\. Go on with `agentgym resume RUN_DIR`"
    with pytest.raises(PolicyError, match=broken if deaths == 2 else end):
        go(work())
    world.ahead.close()
    assert len(killed) == (2 if deaths == 2 else 4) and not any(running(p) for p in killed)


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.02)
    monkeypatch.setattr(module, "_DEATHS", 99)
    world = World(tmp_path)
    assert world.ahead._patience == 120
    world.ahead._patience = 0.1  # much less than a start takes, so that none of them ever says anything
    world.ahead.start(0)
    with pytest.raises(PolicyError, match=r"generator-1 gave no sign of life for 0\.\d+ s and was ended, 4 times in a row"):
        go(world.next())  # type: ignore[arg-type]
    world.ahead.close()


def test_its_own_failure_comes_with_its_traceback(world: World) -> None:
    import pickle

    world.ahead._deliver(world.ahead._seats[0], pickle.dumps(("error", "Traceback …\nKeyError: 'x'")))
    with pytest.raises(PolicyError, match=r"(?s)agentgym-generator-1 failed:.*KeyError: 'x'"):
        go(world.next())  # type: ignore[arg-type]


def test_generators_of_a_killed_trainer_go_by_themselves(tmp_path: Path) -> None:
    """With adapters this time: they travel to the other process too."""
    pytest.importorskip("peft")
    world = World(tmp_path, {"model": {"lora": {"r": 2}}})
    trainer = os.fork()
    if trainer == 0:
        try:
            world.ahead.start(0)
            go(world.next())  # type: ignore[arg-type]
            world.pace(3600.0)
            world.publish()
            (tmp_path / "pid").write_text(f"{world.ahead._seats[0].process.pid} ")
            time.sleep(60)
        finally:
            os._exit(1)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith(" "))
    generator = int((tmp_path / "pid").read_text())
    assert running(generator)
    os.kill(trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    wait_until(lambda: not running(generator))


# ---------------------------------------------------------------------------------------------------------------- checkpoints, refusals


def test_a_checkpoint_holds_what_was_admitted_and_not_learnt_from(world: World, tmp_path: Path) -> None:
    world.publish()
    world.pace(0.1)
    state = world.ahead.state_dict()
    _check_plain(state, "state")
    pending = world.ahead.pending()
    assert len(pending) >= B and [j.serial for j in pending] == sorted(j.serial for j in pending)
    other = World(tmp_path)
    other.ahead.load_state_dict(json.loads(json.dumps(state)))
    same = [(j.serial, j.key, j.task, j.seed) for j in pending]
    assert [(j.serial, j.key, j.task, j.seed) for j in other.ahead.pending()] == same
    drawn = other.ahead._draw(len(pending) + 1)
    assert [(j.serial, j.key, j.task, j.seed) for j in drawn[:-1]] == same  # first what was pending
    assert drawn[-1].serial == world.ahead._serial and drawn[-1].key == f"rl-{drawn[-1].serial}"


def test_who_goes_ahead(tmp_path: Path) -> None:
    config = configure(tmp_path)
    assert goes_ahead(config) and not goes_ahead(configure(tmp_path, {"rollout": {"max_staleness": 0}}))
    assert not goes_ahead(configure(tmp_path, {"policy": "expert"}))
    config.run.device = "cuda"
    with pytest.raises(ConfigError, match=r"plays in other processes on the CPU; with device=cuda use rollout\.max_staleness=0"):
        Ahead(config, "rl", torch.nn.Linear(1, 1), None, lambda n: [], say=print)


def test_a_generator_that_died_with_the_lock_is_passed_over() -> None:
    import contextlib

    seat = object.__new__(Seat)
    seat._lock = module.mp.get_context("fork").Lock()
    seat.process = type("Dead", (), {"is_alive": lambda self: False})()
    seat._lock.acquire()
    with contextlib.ExitStack() as held:
        seat.hold(held)
    assert not seat._lock.acquire(block=False)  # left alone: it is not ours
