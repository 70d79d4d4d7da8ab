"""How history becomes a prompt: pure functions (goal, history, now) → messages.

When the messages of a turn begin with the messages and the completion of the turn before, the agent loop only adds the new tokens to the
token stream; otherwise a new segment begins. A context need not know about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .types import Message

__plugins__ = ["full", "markov", "window"]


@dataclass(slots=True)
class Turn:
    """One exchange as the contexts see it; `completion` and `action` are empty for the turn that is now asked for."""

    observation: str
    admissible: Sequence[str] | None = None
    completion: str = ""
    action: str = ""


def _ask(turn: Turn, instruction: str, admissible: bool) -> str:
    parts = [turn.observation]
    if admissible and turn.admissible is not None:
        parts.append("Admissible actions: " + ", ".join(turn.admissible))
    if instruction:
        parts.append(instruction)
    return "\n".join(parts)


def full(goal: str, history: Sequence[Turn], now: Turn, *, system: str = "", instruction: str = "", admissible: bool = False) -> list[Message]:
    """The whole episode as one chat: every observation a user message, every completion an assistant message."""
    out = [Message("system", system)] if system else []
    for turn in history:
        out.append(Message("user", _ask(turn, instruction, admissible)))
        out.append(Message("assistant", turn.completion))
    out.append(Message("user", _ask(now, instruction, admissible)))
    return out


def window(
    goal: str,
    history: Sequence[Turn],
    now: Turn,
    *,
    size: int = 2,
    system: str = "",
    role: str = "You are an expert agent acting in a text environment.",
    instruction: str = "",
    admissible: bool = True,
) -> list[Message]:
    """One user message a turn: role, goal, step number, the last `size` (observation, action) pairs, the observation, the actions.

    The content is verl-agent's (history length 2 there); every turn is a new context, so every step is its own segment.
    """
    lines = [role, f"Your task is: {goal}"]
    if history:
        first = max(0, len(history) - size)
        lines.append(f"You have taken {len(history)} step(s) so far. The last {len(history) - first} observation(s) and action(s):")
        lines += [f"[{i + 1}] observation: {t.observation}\n[{i + 1}] action: {t.action}" for i, t in enumerate(history[first:], first)]
    lines.append(f"You are at step {len(history) + 1}. Current observation: {now.observation}")
    if admissible and now.admissible is not None:
        lines.append("Admissible actions: " + ", ".join(now.admissible))
    if instruction:
        lines.append(instruction)
    return [*([Message("system", system)] if system else []), Message("user", "\n".join(lines))]


def markov(goal: str, history: Sequence[Turn], now: Turn, *, system: str = "", instruction: str = "", admissible: bool = True) -> list[Message]:
    """Only the goal and the current observation: for environments whose observation is the state."""
    head = [Message("system", system)] if system else []
    return [*head, Message("user", f"Your task is: {goal}\n" + _ask(now, instruction, admissible))]
