"""What every backend of kind `cluster` (local, ray) promises: roles are placed, answer, are lost, come back, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.config import Config, Plugin
from agentgym.errors import ConfigError, EnvError, LostError
from agentgym.rollout import Agent
from agentgym.trainers import setup
from agentgym.trainers.cluster._envs import EnvWorker, RemoteEnv, RemoteGym, deal_slots
from agentgym.trainers.cluster._place import Backend, Engines, section
from agentgym.trainers.cluster.local import devices, local
from agentgym.trainers.policy.scripted import scripted
from agentgym.types import Sampling, Task

Make = Callable[..., Backend]
ENVS = {"number": 1, "cpus": 0.5, "concurrency": 2}
TASK = "3:0-0-1"  # of the test split: take the key, go right, open the door


def worker(backend: Backend, env: str, **options: Any) -> Any:
    import pickle

    config = Config(env=Plugin(env, options))
    return backend.place("environments-0", "envs", 0, EnvWorker, config, pickle.dumps({}), backend.envs.concurrency, restart=True)


def remote(place: Any) -> RemoteEnv:
    return RemoteEnv(place, deque(), "me", "test")


def patient(call: Callable[[], Any]) -> Any:
    """Call until it is not lost: a worker needs a moment to come back."""
    end = time.monotonic() + 90
    while True:
        try:
            return call()
        except LostError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_role_answers_fails_dies_and_comes_back(backend: Make, obedient: str, alive: Callable[[int], bool], wait_until: Callable[..., Any]) -> None:
    b = backend(envs=ENVS)
    place = worker(b, obedient)
    env = remote(place)
    first, info = env.reset(seed=1, options={"task": TASK})
    here = setup.make_env(Config(env=Plugin("toy", {"size": 3, "max_steps": 6})), "test")()
    assert (first, info) == here.reset(seed=1, options={"task": TASK}) and env.tasks() == here.tasks()
    assert env.step("take key") == here.step("take key")
    expert = env.expert()
    assert expert.act("", {}) == here.expert().act("", {})

    # What the environment raises arrives as what it is, and the role goes on.
    with pytest.raises(ValueError, match="as it was told") as e:
        env.step("raise")
    assert "obedient" in str(e.value.__notes__)
    with pytest.raises(EnvError, match=r"expert has no option 'planner'"):
        env.expert(planner=True)
    with pytest.raises(AttributeError):
        place.call("no_such_method").result()
    pid = int(env.step("pid")[0])
    assert alive(pid)

    # It dies: who waits hears of it, at once, and the place is filled again.
    waiting = place.call("call", env._key, "step", ("wait 60",), {})
    begun = time.monotonic()
    with pytest.raises(LostError, match="environments-0"):
        env.step("die")
    with pytest.raises(LostError):
        waiting.result(30)
    assert time.monotonic() - begun < 30
    again = remote(place)
    patient(lambda: again.reset(seed=1, options={"task": TASK}))
    other = int(again.step("pid")[0])
    assert other != pid and alive(other) and not alive(pid)
    with pytest.raises(LostError, match="was restarted and does not know this environment"):
        env.step("go right")

    # It is closed: the process is gone, and calls say so.
    b.close()
    b.close()
    wait_until(lambda: not alive(other), 10)
    with pytest.raises(LostError):
        place.call("busy").result(10)


def test_large_values_are_put_once_and_arrive_whole(backend: Make, obedient: str) -> None:
    b = backend(envs=ENVS)
    place = worker(b, obedient)
    large = "me" * 2_000_000
    handle, array = b.put(large), b.put(np.arange(10))
    keys = [place.call("make", handle, "test").result(60) for _ in range(2)]  # an owner with a long name
    place.call("forget", "me").result(20)
    assert place.call("call", keys[1], "tasks", (), {}).result(20)
    place.call("forget", large).result(20)
    with pytest.raises(LostError):
        place.call("call", keys[1], "tasks", (), {}).result(20)
    for one in (handle, array, handle):
        b.free(one)


def test_so_many_work_at_a_time_and_what_hangs_gives_its_place_back(backend: Make, obedient: str, wait_until: Callable[..., Any]) -> None:
    place = worker(backend(envs=ENVS), obedient)  # two at a time
    envs = [remote(place) for _ in range(4)]
    for env in envs:
        env.reset(options={"task": TASK})
    begun = time.monotonic()
    calls: list[Future[Any]] = [place.call("call", e._key, "step", ("wait 0.4",), {}) for e in envs]
    time.sleep(0.1)
    assert place.call("busy").result() == 2
    for call in calls:
        call.result(20)
    assert 0.8 <= time.monotonic() - begun < 5
    hung = [place.call("call", e._key, "step", ("hang",), {}) for e in envs[:2]]
    wait_until(lambda: place.call("busy").result() == 2)
    envs[0].close()  # as the agent loop does after a time-out
    envs[2].step("go left")
    with pytest.raises(LostError):
        hung[0].result(20)
    assert not hung[1].done()
    place.call("forget", "me").result(20)
    assert place.call("busy").result() == 0


def test_episodes_whose_worker_died_are_played_again_and_slow_ones_keep_nobody_waiting(backend: Make, obedient: str, tmp_path: Path) -> None:
    b = backend(envs={**ENVS, "number": 1, "concurrency": 3})
    log = tmp_path / "log"
    gym = RemoteGym(deal_slots([worker(b, obedient, log=str(log))], 3, 0, 1), "me", "test", concurrency=8, timeout=30)

    def agent(*actions: str) -> Agent:
        from agentgym.action import plain
        from agentgym.context import full

        return Agent(scripted(actions=actions), full, plain, Sampling())

    order: list[str] = []

    async def play(name: str, *actions: str) -> Any:
        out = await gym.play(agent(*actions), Task(TASK, "obedient", "test"), group=name, seed=0)
        order.append(name)
        return out

    async def work() -> None:
        await play("first", "pid")  # it is up
        slow = asyncio.ensure_future(play("slow", "wait 1.5", "go left"))
        fast = [await play(f"fast-{i}", "take key", "go right", "open door") for i in range(5)]
        assert all(t.success and not t.failed for t in fast) and order[-1] == "fast-4" and not slow.done()
        assert not (await slow).failed

        # One that kills its worker every time is broken in the end; one beside it was lost with it, and is played again.
        beside = asyncio.ensure_future(play("beside", "wait 0.5", "take key", "go right", "open door"))
        await asyncio.sleep(0.2)
        place = gym._make()._slot  # type: ignore[attr-defined]
        victim = remote(place)
        await asyncio.to_thread(victim.reset, options={"task": TASK})
        with pytest.raises(LostError):
            await asyncio.to_thread(victim.step, "die")
        out = await beside
        assert out.success and not out.failed and gym.again >= 1

    asyncio.run(asyncio.wait_for(work(), 120))


def test_what_is_not_there_is_refused(backend: Make) -> None:
    import functools

    name = backend.name  # type: ignore[attr-defined]
    many = {"number": 3, "gpus": 1}
    text = "cluster.engines asks for 3 GPU" if name == "local" else r"cluster.ray asks for 3 CPU, 3 GPU \(strategy PACK\).*The cluster has .*0 GPU"
    with pytest.raises(ConfigError, match=text):
        backend(engines=many, **({} if name == "local" else {"patience": 1.0}))
    for options, message in [
        ({"engines": {"nubmer": 1}}, r"cluster.engines: unknown key 'nubmer'. Did you mean 'number'"),
        ({"engines": {"number": "two"}}, r"cluster.engines.number: got 'two' \(str\), expected int"),
        ({"envs": {"concurrency": 0}}, r"cluster.envs.concurrency is 0; it is at least 1"),
        ({"engines": {"gpus": -1.0}}, r"cluster.engines.gpus is -1.0; it is at least 0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            functools.partial(backend, **options)()


def test_slots_are_dealt_so_that_everybody_uses_all_workers() -> None:
    a, b = "a", "b"
    assert deal_slots([a, b], 3, 0, 1) == [a, b, a, b, a, b]  # type: ignore[list-item,comparison-overlap]
    assert [deal_slots([a, b], 3, i, 4) for i in range(4)] == [[a, a], [b, b], [a], [b]]  # type: ignore[list-item,comparison-overlap]


def test_gpus_are_given_from_the_last_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    of = lambda n, gpus, there: devices(Engines(n, gpus=gpus), there)  # noqa: E731
    assert of(2, 0.0, 8) == ["", ""] and of(2, 1.0, 4) == ["2", "3"] and of(2, 2.0, 5) == ["1,2", "3,4"]
    assert of(4, 0.5, 3) == ["1", "1", "2", "2"] and of(3, 0.4, 2) == ["0", "0", "1"]
    with pytest.raises(ConfigError, match=r"asks for 4 GPU\(s\) \(2 of them with 2 each\), this machine shows 3"):
        of(2, 2.0, 3)
    with pytest.raises(ConfigError, match="a whole number, or below 1"):
        of(1, 1.5, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert of(1, 1.0, 2) == ["7"]


def test_the_local_backend_has_no_options_of_others() -> None:
    from agentgym import registry

    with pytest.raises(ConfigError, match="cluster 'local' has no option 'strategy'"):
        registry.bind("cluster", "local", {"strategy": "PACK"})
    assert local().engines == section(Engines, None, "x") == Engines()
