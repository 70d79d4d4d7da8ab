"""What functional rewards look at: what the agent did at a decision, and what the expert did there (PivotRL's verifiers)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from agentgym.branch import start_of
from agentgym.errors import ConfigError
from agentgym.types import Trajectory

_PUNCTUATION = str.maketrans("", "", string.punctuation)


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


def normalise(text: str) -> str:
    """Return an answer as SQuAD compares it: lower case, no punctuation, no articles, single blanks."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(one: str, two: str) -> float:
    """Return the F1 of the words that two texts share, 2·P·R / (P + R), each word as often as it stands there; 1 for two texts without words."""
    a, b = Counter(normalise(one).split()), Counter(normalise(two).split())
    if not a or not b:
        return float(a == b)
    common = sum((a & b).values())
    return 2.0 * common / (a.total() + b.total())
