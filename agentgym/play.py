"""Let a person play an environment in the terminal."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .config_files import read_override
from .env import Expert, TextEnv, find_env, make, options_of
from .errors import AgentGymError, ConfigError

HELP = "An empty line: the expert's move (an environment without one: a random admissible action). :quit ends, :help says this."


def play(name: str, options: Mapping[str, Any], *, task: str | None = None, seed: int | None = None, console: Console | None = None) -> None:
    """Play one episode. A tool environment takes its calls in the format `plain` (`add 1 2`) unless `options` name another."""
    console = console or Console()
    env = make(name, **_easy(name, options))
    try:
        seed = random.SystemRandom().randrange(2**31) if seed is None else seed
        observation, info = env.reset(seed=seed, options={"task": task} if task else None)
        console.print(Text(f"{name}: task {info.get('task_id')!r}, seed {seed}. {HELP}", style="dim"))
        _turns(env, observation, info, console)
    finally:
        env.close()


def _easy(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    takes = options_of(find_env(name))[0]
    return {"format": "plain", **options} if "format" in takes and "max_calls" in takes else dict(options)


def _turns(env: TextEnv, observation: str, info: dict[str, Any], console: Console) -> None:
    player: Expert | None = None
    total, done, number = 0.0, False, 0
    console.print(_shown(number, observation, info))
    while not done:
        try:
            line = console.input("[bold]> [/bold]")
        except EOFError:
            line = ":quit"
        if line.strip() in (":quit", ":q", ":help", ":h"):
            console.print(Text(HELP))
            if line.strip()[1] == "q":
                return
            continue
        if not line:
            player = player or _expert(env, console)
            line = player.act(observation, info) if player else _random(info)
            console.print(Text(f"> {line}", style="magenta"))
        observation, gained, terminated, truncated, info = env.step(line)
        reward = float(gained)
        total, number, done = total + reward, number + 1, terminated or truncated
        console.print(_shown(number, observation, info, reward))
    end = "succeeded" if info.get("success") else "the step limit was reached" if truncated else "ended without success"
    console.print(Text(f"{end[0].upper()}{end[1:]} after {number} steps; return {total:g}.", style="green" if info.get("success") else "yellow"))


def _expert(env: TextEnv, console: Console) -> Expert | None:
    try:
        return env.unwrapped.expert()  # type: ignore[attr-defined, no-any-return]
    except AgentGymError as e:
        console.print(Text(str(e), style="dim"))
        return None


def _random(info: Mapping[str, Any]) -> str:
    return random.choice(list(info.get("admissible") or [""]))


def _shown(number: int, observation: str, info: Mapping[str, Any], reward: float | None = None) -> Panel:
    """Return the panel of one turn."""
    facts = Table.grid(padding=(0, 1))
    rows: list[tuple[str, str]] = []
    if reward is not None:
        rows.append(("reward", f"{reward:g}" + " (the action was not accepted)" * (not info.get("valid"))))
    if info.get("rewards"):
        rows.append(("parts", ", ".join(f"{k} {v:g}" for k, v in info["rewards"].items())))
    rows.append(("state", str(info.get("state", ""))[:100].replace("\n", " ")))
    if info.get("admissible"):
        rows.append(("actions", " · ".join(info["admissible"])))
    elif info.get("tools"):
        rows.append(("tools", " · ".join(t.signature for t in info["tools"])))
    for key, value in rows:
        facts.add_row(Text(key, style="cyan"), Text(value))
    return Panel(Group(Text(observation), Text(), facts), title=f"step {number}", title_align="left")


def parse_options(given: list[str]) -> dict[str, Any]:
    """Turn `split=test max_steps=5` into options, values read as YAML."""
    out: dict[str, Any] = {}
    for text in given:
        key, eq, _ = text.partition("=")
        if not eq or not key.isidentifier():
            raise ConfigError(f"{text!r}: an option of the environment is written name=value, for example split=test")
        out |= read_override(text)
    return out
