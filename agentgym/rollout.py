"""LOOP 1, the agent loop: one episode (`play`), one group, many at once (`Gym`). Episodes proceed independently; nobody waits for the slowest.

Token-in, token-out: the ids that the policy sampled are stored as they are and become the context of the next turn; text is only a view.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import branch
from .action import INSTRUCTION, Parsed
from .context import Turn
from .env import TextEnv
from .errors import AgentGymError, EnvError, PolicyError
from .policy import Policy, Request
from .registry import options_of
from .types import Completion, Message, Sampling, Status, Step, Task, Trajectory


class Renders(Protocol):
    """What the loop needs of agentgym.renderer.Renderer."""

    stop_ids: frozenset[int]

    def render(self, messages: Sequence[Message]) -> list[int]: ...
    def extend(self, messages: Sequence[Message], *, ended: bool) -> list[int]: ...
    def encode_completion(self, text: str) -> list[int]: ...


@dataclass
class Agent:
    """Everything on the agent's side of an episode.

    renderer  None: episodes are text only (an API model, an expert that nobody trains on)
    rewards   name → function of the finished trajectory; each part is added to the last step's reward and to the outcome
    """

    policy: Policy
    context: Callable[..., list[Message]]
    action: Callable[[str], Parsed]
    sampling: Sampling
    renderer: Renders | None = None
    rewards: dict[str, Callable[[Trajectory], float]] | None = None
    invalid_penalty: float = 0.0

    def messages(self, goal: str, history: list[Turn], now: Turn) -> list[Message]:
        """Build the prompt of one turn."""
        return self.context(goal, history, now, **self._instruction)

    @functools.cached_property
    def _instruction(self) -> dict[str, str]:
        """What the action format asks for, where the context has a place for it and the user has not said something else."""
        fn = getattr(self.action, "func", self.action)
        text = INSTRUCTION.get(getattr(fn, "__name__", ""), "")
        wanted = text and "instruction" in options_of(self.context) and "instruction" not in getattr(self.context, "keywords", {})
        return {"instruction": text} if wanted else {}


class Stream:
    """The token stream of one episode: which ids are new this turn, and whether they begin a new segment."""

    def __init__(self, renderer: Renders | None) -> None:
        self.renderer = renderer
        self.tokens: list[int] = []
        self.messages: list[Message] = []

    def prompt(self, messages: list[Message]) -> tuple[list[int], bool]:
        """Take this turn's messages; return (ids that are added to the context, new segment)."""
        if self.renderer is None:
            return [], not self.messages
        seen = len(self.messages)
        if seen and messages[:seen] == self.messages:
            ids = self.renderer.extend(messages[seen:], ended=self.tokens[-1] in self.renderer.stop_ids)
            self.tokens += ids
            return ids, False
        self.tokens = self.renderer.render(messages)
        return list(self.tokens), True

    def answer(self, messages: list[Message], completion: Completion) -> None:
        """Append what the policy wrote; a text policy's words become ids here, once."""
        if self.renderer is not None:
            if completion.tokens is None:
                completion.tokens = self.renderer.encode_completion(completion.text)
            self.tokens += completion.tokens
        self.messages = [*messages, Message("assistant", completion.text)]


async def play(agent: Agent, env: TextEnv | None, task: Task, *, group: str, seed: int, timeout: float = 60.0) -> Trajectory:
    """Play one episode. A failure of the environment or the policy makes it `status=error` with the reason; it never raises.

    It begins where the task says (see branch.py); `env` may be None where that needs no environment.
    """
    out = Trajectory(task, group)
    episode = f"{group}/{seed}"
    try:
        await _episode(agent, env, out, episode, seed, timeout)
        _score(agent, out)
    except Exception as e:
        out.status, out.error = Status.ERROR, f"{type(e).__name__}: {e}"
        if not isinstance(e, AgentGymError):  # a bug, in a plug-in or here: the reason must not get lost
            out.info["traceback"] = traceback.format_exc()
    finally:
        agent.policy.release(episode)
    return out


async def _episode(agent: Agent, env: TextEnv | None, out: Trajectory, episode: str, seed: int, timeout: float) -> None:
    world, history, calls = branch.enter(env, out.task)
    observation, info = await _call(world, calls * timeout, world.reset, seed=out.task.seed, options={"task": out.task.id})
    goal, stream = str(info.get("goal", observation)), Stream(agent.renderer)
    branch.read(agent, stream, goal, history)
    out.info["task_type"] = info.get("task_type", "")
    done = False
    while not done:
        now = Turn(observation, info.get("admissible"))
        messages = agent.messages(goal, history, now)
        prompt, new_segment = stream.prompt(messages)
        if not out.steps:  # also where turns came before: what the policy has not written, it reads
            prompt, new_segment = list(stream.tokens), True
        request = Request(episode, _turn_seed(seed, len(history)), stream.tokens, messages, observation, info, env)
        completion = await agent.policy.complete(request, agent.sampling)
        stream.answer(messages, completion)
        parsed = agent.action(completion.text)
        state = str(info.get("state", observation))
        nxt, reward, terminated, truncated, info = await _call(world, timeout, world.step, parsed.action)
        valid = parsed.valid and bool(info.get("valid", True))
        penalty = 0.0 if valid else -agent.invalid_penalty
        out.steps.append(
            Step(prompt, new_segment, completion, parsed.action, valid, observation, float(reward), state, penalty, dict(info.get("keep", {})))
        )
        history.append(Turn(observation, now.admissible, completion.text, parsed.action))
        observation, done = nxt, terminated or truncated
        out.status = Status.TERMINATED if terminated else Status.TRUNCATED
    out.success, out.final_observation = bool(info.get("success", False)), observation


def _turn_seed(seed: int, turn: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=7).digest(), "big")


def _score(agent: Agent, out: Trajectory) -> None:
    out.rewards = {"env": sum(s.reward for s in out.steps)}
    for name, fn in (agent.rewards or {}).items():
        out.rewards[name] = part = float(fn(out))
        out.steps[-1].reward += part
    out.outcome = sum(out.rewards.values())
    if branch.judged_by_reward(out.task):
        out.success = out.outcome > 0


async def _call(env: TextEnv, timeout: float, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the environment: at once when it is pure computation, in a thread with a time-out when it may block."""
    if not _blocking(env):
        return fn(*args, **kwargs)
    try:
        async with asyncio.timeout(timeout) as limit:
            return await in_thread(functools.partial(fn, *args, **kwargs))
    except TimeoutError:
        if not limit.expired():  # the environment's own
            raise
        raise EnvError(f"{type(env.unwrapped).__name__}.{fn.__name__} gave no answer within {timeout:g} s") from None


def _blocking(env: TextEnv) -> bool:
    return bool(getattr(env.unwrapped, "blocking", False))


async def in_thread(fn: Callable[[], Any]) -> Any:
    """Run `fn` in a thread of its own.

    A pool would be wrong here: its size (asyncio's: cores + 4) would bound the episodes, a call that hangs would keep a place for ever, and
    the process could not end before it. One episode has one call at a time, so there are never more threads than places in the gym.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if future.done():  # timed out: nobody waits any more
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = fn()
        except BaseException as e:  # StopIteration cannot travel in a future, and SystemExit would end the run
            ordinary = isinstance(e, Exception) and not isinstance(e, StopIteration)
            error = e if ordinary else EnvError(f"the environment raised {type(e).__name__}: {e}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name="agentgym-env", daemon=True).start()
    return await future


class Gym:
    """Environments and an agent: plays many episodes at once, a finished one frees its environment at once.

    `make_env` is called only when no idle environment is left; there are never more than `concurrency` environments at work. One that failed,
    or whose episode was cancelled, is closed and not used again.
    """

    def __init__(self, make_env: Callable[[], TextEnv], *, concurrency: int, timeout: float = 60.0) -> None:
        if concurrency < 1:
            raise EnvError(f"concurrency must be at least 1, got {concurrency}")
        self._make, self._timeout = make_env, timeout
        self._free = asyncio.Semaphore(concurrency)
        self._idle: list[TextEnv] = []

    async def play(self, agent: Agent, task: Task, *, group: str, seed: int) -> Trajectory:
        """Play one episode as soon as a place is free."""
        async with self._free:
            env: TextEnv | None = None
            try:
                if branch.needs_env(task):
                    env = self._idle.pop() if self._idle else self._make()
            except Exception as e:
                return Trajectory(task, group, status=Status.ERROR, error=f"{type(e).__name__}: {e}")
            whole = False
            try:
                out = await play(agent, env, task, group=group, seed=seed, timeout=self._timeout)
                whole = not out.failed
            finally:  # also when the episode was cancelled
                if whole and env is not None:
                    self._idle.append(env)
                elif env is not None:
                    _close([env], wait=0.0)
            return out

    def close(self) -> None:
        """Close every idle environment."""
        idle, self._idle = self._idle, []
        _close(idle, wait=self._timeout)


def _close(envs: Sequence[TextEnv], *, wait: float) -> None:
    """Close environments, those that may block side by side in threads; a broken one may fail to close, or hang: nobody waits longer than that."""
    threads = [threading.Thread(target=_close_quietly, args=(e,), name="agentgym-close", daemon=True) for e in envs if _blocking(e)]
    for thread in threads:
        thread.start()
    for env in envs:
        if not _blocking(env):
            _close_quietly(env)
    until = time.monotonic() + wait
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _close_quietly(env: TextEnv) -> None:
    try:
        env.close()
    except Exception:  # its episode already carries the reason
        pass


def episode_seed(seed: int, index: int) -> int:
    """Return the seed of episode `index` of a group."""
    return seed * 1_000_003 + index


async def collect(*args: Any, **kwargs: Any) -> list[list[Trajectory]]:
    """Return what `play_groups` does. Raises PolicyError when every episode is broken: then it is not the episodes."""
    return check_some(await play_groups(*args, **kwargs))


async def play_groups(
    gym: Gym,
    agent: Agent,
    tasks: Sequence[tuple[str, Task, int]],
    explore: Callable[..., Any],
    *,
    size: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Trajectory]]:
    """Play a group of `size` episodes for each (group key, task, seed); returns the groups in the order of `tasks`."""
    done, total = 0, len(tasks) * size

    async def run(key: str, seed: int, task: Task, index: int) -> Trajectory:
        nonlocal done
        out = await gym.play(agent, task, group=key, seed=episode_seed(seed, index))
        done += 1
        if progress:
            progress(done, total)
        return out

    groups = await asyncio.gather(*(explore(task, functools.partial(run, key, seed), size=size) for key, task, seed in tasks))
    return list(groups)


def check_some(groups: list[list[Trajectory]]) -> list[list[Trajectory]]:
    """Return the groups. Raises PolicyError when every episode of all of them is broken."""
    played = [t for g in groups for t in g]
    if played and all(t.failed for t in played):
        raise PolicyError(f"all {len(played)} episodes failed; the first: {played[0].error}\n{played[0].info.get('traceback', '')}".rstrip())
    return groups
