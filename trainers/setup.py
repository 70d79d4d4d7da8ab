"""From a checked configuration to the parts of a run: tasks, model, agent, gym. No loop and no method's name in here."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentgym import registry
from agentgym.config import Config, Plugin
from agentgym.config import stages as stages_of
from agentgym.env import TextEnv, make
from agentgym.errors import ConfigError, EnvError, TaskError
from agentgym.policy import Policy
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym
from agentgym.types import Sampling, Task, Trajectory

if TYPE_CHECKING:
    from .streams import Critic


def seed_of(*parts: Any) -> int:
    """Return a 62-bit seed that depends on nothing but `parts`: the same on every machine, in every process, after every resume."""
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest(), "big") >> 2


def make_env(config: Config, split: str) -> Callable[[], TextEnv]:
    """Return a factory for environments of `split`."""
    return functools.partial(make, config.env.name, split=split, **config.env.options)


def tasks_of(config: Config, split: str) -> list[Task]:
    """Return all tasks of a split. Raises TaskError when there are none."""
    env = make_env(config, split)()
    try:
        ids = env.tasks()
    finally:
        env.close()
    if not ids:
        raise TaskError(f"environment {config.env.name!r} has no tasks in the split {split!r}")
    return [Task(i, config.env.name, split, seed=seed_of(i)) for i in ids]


def split_hash(tasks: list[Task]) -> str:
    """Return the sha256 over the sorted task ids of a split."""
    return hashlib.sha256("\n".join(sorted(t.id for t in tasks)).encode()).hexdigest()


def check_disjoint(train: list[Task], held_out: list[Task]) -> None:
    """Raise TaskError if a held-out task is trained on."""
    both = {t.id for t in train} & {t.id for t in held_out}
    if both:
        raise TaskError(f"{len(both)} held-out task(s) are also in the training split, e.g. {min(both)!r}: choose disjoint splits")


def corpus(config: Config, episodes: int = 300) -> Iterator[str]:
    """Yield the words of the environment as a fresh tokenizer should know them: observations and actions of its expert (or of random play)."""
    fresh = make_env(config, config.splits.train)
    env = fresh()
    try:
        ids = env.tasks()
        for n in range(min(episodes, len(ids))):
            try:
                yield from _words(env, ids[n * len(ids) // min(episodes, len(ids))], n)
            except EnvError:  # one that breaks has said enough
                env.close()
                env = fresh()
    finally:
        env.close()


def _words(env: TextEnv, task: str, seed: int) -> Iterator[str]:
    observation, info = env.reset(seed=seed, options={"task": task})
    player, done = _player(env, seed), False
    while not done:
        yield observation
        action = player(observation, info)
        yield action
        observation, _, terminated, truncated, info = env.step(action)
        done = terminated or truncated
    yield observation


def _player(env: TextEnv, seed: int) -> Callable[[str, Mapping[str, Any]], str]:
    import random

    if type(env.unwrapped).expert is not TextEnv.expert:  # type: ignore[attr-defined]
        return env.unwrapped.expert().act  # type: ignore[attr-defined, no-any-return]
    rng = random.Random(seed)
    return lambda observation, info: rng.choice(list(info.get("admissible") or [""]))


def bind_map(kind: str, parts: Mapping[str, Plugin], reserved: tuple[str, ...] = ()) -> dict[str, Any]:
    """Bind every plug-in of a map; `reserved` options (such as an objective's coefficient) are left out."""
    return {n: registry.bind(kind, p.name, {k: v for k, v in p.options.items() if k not in reserved}) for n, p in parts.items()}


def model_of(config: Config, device: str) -> tuple[Any, Any]:
    """Return model and tokenizer of a run, as every process of it makes them."""
    from .model import load_model

    words = corpus(config) if config.model.name == "tiny" else None
    model, tokenizer = load_model(config.model.name, corpus=words, seed=config.run.seed, device=device, **config.model.options)
    prepare_model(config, model, tokenizer)
    return model, tokenizer


def prepare_model(config: Config, model: Any, tokenizer: Any) -> None:
    """Let the critics of all stages change the model (reserve tokens of its vocabulary) before anybody copies it."""
    for c in stages_of(config).values():
        prepare = getattr(registry.find("critic", c.critic.name), "prepare", None) if c.critic else None
        if c.critic and prepare is not None:
            prepare(model, tokenizer, **registry.bind("critic", c.critic.name, c.critic.options).keywords)


def make_fillers(config: Config, model: Any, renderer: Renderer) -> tuple[dict[str, Any], Critic | None]:
    """Return the teachers by name, with the critic among them, and the critic or None."""
    fillers = {n: bound(model, renderer) for n, bound in bind_map("teacher", config.teachers).items()}
    if config.critic is None:
        return fillers, None
    critic: Critic = registry.bind("critic", config.critic.name, config.critic.options)(model, renderer)
    return {**fillers, "critic": critic}, critic


def make_policy(section: Plugin, model: Any, renderer: Renderer | None) -> Policy:
    """Make the policy that acts: one that reads tokens gets the model and the renderer, one that reads text gets neither."""
    bound = registry.bind("policy", section.name, section.options)
    needs_model = registry.needs_model(section.name)
    if needs_model and model is None:
        raise ConfigError(f"policy {section.name!r} needs a model")
    policy: Policy = bound(model, renderer) if needs_model else bound()
    return policy


def is_alone(config: Config) -> bool:
    """Return whether a single process must have the policy to itself."""
    return bool(getattr(registry.find("policy", config.policy.name), "alone", False))


def check_alone(config: Config, processes: bool) -> None:
    """Raise ConfigError when several processes play and a single one must have the policy to itself."""
    if processes and is_alone(config):
        raise ConfigError(
            f"policy {config.policy.name!r} works in one process: set run.workers=1 and rollout.max_staleness=0. More engines make it faster, not "
            "more processes that ask them"
        )


def make_agent(config: Config, policy: Policy, renderer: Renderer | None, *, evaluating: bool = False) -> Agent:
    """Put policy, context, action format, sampling and rewards together."""
    r, e = config.rollout, config.eval
    how = e if evaluating else r
    sampling = Sampling(r.max_tokens, how.temperature, how.top_p, how.top_k, tuple(r.stop))
    return Agent(
        policy=policy,
        context=registry.bind("context", config.context.name, config.context.options),
        action=registry.bind("action", config.action.name, config.action.options),
        sampling=sampling,
        renderer=renderer,
        rewards=bind_map("reward", config.rewards),
        invalid_penalty=r.invalid_penalty,
    )


@dataclass
class Panel:
    """The held-out episodes of a run: always the same tasks and seeds, so that two results can be compared pair by pair."""

    tasks: list[Task]
    gym: Gym
    seed: int

    def player(self, agent: Agent) -> Callable[[Task, int], Any]:
        """Return `play(task, sample)` for agentgym.evaluate."""

        async def play(task: Task, sample: int) -> Trajectory:
            return await self.gym.play(agent, task, group=f"eval/{task.id}", seed=seed_of("eval", self.seed, task.id, sample))

        return play

    def some(self, n: int | None) -> list[Task]:
        """Return `n` tasks drawn once and for all (all when None): the cheap panel for the evaluations in between.

        Drawn by a hash of the id: every n-th task would meet only some of the task types where these alternate.
        """
        if n is None or n >= len(self.tasks):
            return self.tasks
        drawn = {t.id for t in sorted(self.tasks, key=lambda t: seed_of("panel", t.id))[:n]}
        return [t for t in self.tasks if t.id in drawn]
