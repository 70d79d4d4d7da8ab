"""What functional rewards look at: what the agent did at a decision, and what the expert did there (PivotRL's verifiers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentgym.branch import start_of
from agentgym.errors import ConfigError
from agentgym.types import Trajectory


@dataclass(frozen=True)
class Decision:
    """One decision, twice.

    action, led_to      what the agent did, and the observation that came of it (None: no environment was asked)
    accepted            the action kept to the format and, where there is an environment, was accepted
    expected, expected_led_to   the same of the expert
    """

    action: str
    led_to: str | None
    accepted: bool
    expected: str
    expected_led_to: str

    @property
    def reached(self) -> bool:
        """Return whether an accepted action led to the very same observation."""
        return self.accepted and self.led_to is not None and self.led_to == self.expected_led_to


def decision_of(trajectory: Trajectory) -> Decision:
    """Return the first decision of an episode that began at a pivot. Raises ConfigError when it carries nothing to compare with."""
    expected = trajectory.task.data.get("expected")
    if not isinstance(expected, Mapping) or not {"action", "observation"} <= set(expected):
        raise ConfigError(
            f"a functional reward compares with what the expert did at this decision, and task {trajectory.task.id!r} carries no such thing in "
            "data['expected']: it is for episodes from pivots (sampler=pivots, explore=branch), not for whole ones"
        )
    first, start = trajectory.steps[0], start_of(trajectory.task)
    led_to = trajectory.steps[1].observation if len(trajectory.steps) > 1 else trajectory.final_observation
    unknown = start is not None and start.how == "context"
    return Decision(first.action, None if unknown else led_to, first.valid, str(expected["action"]), str(expected["observation"]))


def plain_words(text: str) -> str:
    """Return a text in lower case with single blanks."""
    return " ".join(text.lower().split())
