"""A sound environment passes; every way to break the contract is found, and named."""

from __future__ import annotations

import re
import threading
import time
from typing import Any, ClassVar

import pytest
from rich.console import Console

import agentgym
from agentgym.check import CLAUSES, check_env, render
from agentgym.envs.toy import toy

Reset = tuple[str, dict[str, Any]]
Answer = tuple[str, float, bool, bool, dict[str, Any]]


class NoState(toy):
    def _info(self, valid: bool) -> dict[str, Any]:
        info = super()._info(valid)
        del info["state"]
        return info | {"success": int(info["success"])}


class BothEnds(toy):
    def step(self, action: str) -> Answer:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated or terminated, info


class OtherTask(toy):
    def pick_task(self, seed: int | None, options: dict[str, Any] | None, ids: list[str]) -> str:
        return super().pick_task(seed, {}, ids)


class KeyErrors(toy):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if options and options.get("task") not in self.tasks():
            raise KeyError(options["task"])
        return super().reset(seed=seed, options=options)


class Clock(toy):
    def step(self, action: str) -> Answer:
        *rest, info = super().step(action)
        return *rest, info | {"now": time.perf_counter()}


class Asserts(toy):
    def step(self, action: str) -> Answer:
        assert len(action) < 1000, "too long"
        action.encode("utf-8")
        return super().step(action)


class GoesOn(toy):
    def step(self, action: str) -> Answer:
        self._running = True
        return super().step(action)


class Shared(toy):
    rooms: list[int] = [0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        observation, info = super().reset(seed=seed, options=options)
        Shared.rooms[0] = self.room
        return observation, info

    def step(self, action: str) -> Answer:
        self.room = Shared.rooms[0]
        out = super().step(action)
        Shared.rooms[0] = self.room
        return out


class Remembers(toy):
    taken = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        observation, info = super().reset(seed=seed, options=options)
        self.has_key = self.taken
        return observation, info

    def step(self, action: str) -> Answer:
        out = super().step(action)
        self.taken = self.taken or self.has_key
        return out


class ClosesOnce(toy):
    def close(self) -> None:
        if getattr(self, "closed", False):
            raise RuntimeError("already closed")
        self.closed = True


class HoldsALock(toy):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class NumpyReward(toy):
    def step(self, action: str) -> Answer:
        observation, _, *rest = super().step(action)
        return (observation, float("nan"), *rest)  # type: ignore[return-value]


class ShuffledTasks(toy):
    def tasks(self) -> list[str]:
        self.calls = getattr(self, "calls", 0) + 1
        return super().tasks()[self.calls % 2 :]


class NoTasks(toy):
    def tasks(self) -> list[str]:
        return []


class SameInfo(toy):
    def _info(self, valid: bool) -> dict[str, Any]:
        self.info = getattr(self, "info", {})
        self.info.update(super()._info(valid))
        return self.info


class WarnsGymnasium(toy):
    def seed(self, seed: int) -> None: ...


ROWS = [{"id": "a"}, {"id": "b"}]


class Drawer(agentgym.ToolEnv):
    """Sound: holds what is put in."""

    def __init__(self, *, split: str = "train") -> None:
        super().__init__(tasks=ROWS, format="plain", max_steps=4)

    @agentgym.tool
    def put(self, thing: str) -> int:
        """Put it in."""
        self.inside.append(thing)
        return len(self.inside)

    def setup(self, task: Any) -> str:
        self.inside: list[str] = []
        return "Put something in."

    def score(self, answer: str) -> bool:
        return answer in self.inside

    def demonstrate(self) -> Any:
        for thing in "abc":
            yield "put", {"thing": thing}
        yield "answer", {"text": "b"}


class NoDocstring(Drawer):
    @agentgym.tool(description=" ")
    def put(self, thing: str) -> int:
        return 0


class WaitsInTheLoop(Drawer):
    blocking = False


class TakesAnything(Drawer):
    def step(self, action: str) -> Answer:
        *rest, info = super().step(action)
        return *rest, info | {"valid": True}


class OneDrawerForAll(Drawer):
    here: ClassVar[set[int]] = set()

    def setup(self, task: Any) -> str:
        self.here.add(threading.get_ident())
        time.sleep(0.02)
        return super().setup(task) + f" {len(self.here)}"

    def close(self) -> None:
        self.here.discard(threading.get_ident())


@pytest.mark.parametrize(
    ("broken", "clause", "what"),
    [
        (NoState, "info", r"info\['state'\] is missing after reset\(\), expected str"),
        (NoState, "info", r"info\['success'\] is 0 after"),
        (BothEnds, "end", "both True"),
        (OtherTask, "tasks by id", "plays task"),
        (KeyErrors, "tasks by id", "raises KeyError, expected TaskError"),
        (Clock, "determinism", r"differ in info\['now'\]"),
        (Asserts, "bad actions", "100,000 characters raises AssertionError: too long"),
        (Asserts, "bad actions", "a lone surrogate raises UnicodeEncodeError"),
        (GoesOn, "step after the end", "is answered"),
        (Shared, "shared state", "while a second instance plays"),
        (Remembers, "fresh reset", "after other episodes"),
        (ClosesOnce, "close", "already closed"),
        (HoldsALock, "pickling", "does not pickle"),
        (NumpyReward, "values", "gave the reward nan"),
        (ShuffledTasks, "task list", "another list"),
        (NoTasks, "task list", "not empty"),
        (SameInfo, "gymnasium", "share an object"),
        (WarnsGymnasium, "gymnasium", "function is dropped"),
        (NoDocstring, "tools", "'put' has no docstring"),
        (WaitsInTheLoop, "tools", "blocking is False, but the tool 'put' has a time-out"),
        (TakesAnything, "hostile calls", "an unknown tool gives terminated=False, valid=True"),
        (OneDrawerForAll, "side by side", "goes another way beside others"),
        (lambda: object(), "instances", "no gymnasium.Env"),
        (lambda: toy(fail_rate=1.0), "values", "raised EnvError"),
    ],
)
def test_a_breach_is_found(broken: Any, clause: str, what: str) -> None:
    problems = check_env(broken, limit=5)
    assert any(p.check == clause and re.search(what, p.what) for p in problems), list(map(str, problems))
    assert all(p.why and p.mend for p in problems)


def test_each_clause_is_broken_by_some_test() -> None:
    table = next(m for m in test_a_breach_is_found.pytestmark if m.name == "parametrize").args[1]
    assert {clause for _, clause, _ in table} == {c.name for c in CLAUSES}


def test_a_sound_environment_passes_whatever_it_is_given_as() -> None:
    for env in ("toy", Drawer, toy, toy(size=8, split="test"), lambda: toy(size=3, max_steps=5)):
        assert check_env(env) == []


def test_one_that_hangs_ends_the_check() -> None:
    release = threading.Event()

    class Hangs(toy):
        def step(self, action: str) -> Answer:
            release.wait(30)
            return super().step(action)

    started = time.perf_counter()
    problems = check_env(Hangs, episodes=1, limit=0.2)
    release.set()
    assert time.perf_counter() - started < 5 and "no end after" in problems[-1].what


def test_the_terminal_shows_what_why_and_how() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(check_env(NoState)))
    console.print(render([]))
    shown = console.export_text()
    for part in ("info['state'] is missing", "why", "mend", " problems", "keeps the contract"):
        assert part in shown


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one episode"):
        check_env("toy", episodes=0)
    assert agentgym.check_env is check_env
