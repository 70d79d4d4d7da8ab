"""Does an ALFWorld command do what the expert's did? The same verb on the same classes of things, or the same next observation."""

from __future__ import annotations

import re

from agentgym.types import Trajectory

from ._decision import decision_of, plain_words

_NUMBER = re.compile(r" \d+\b")


def functional_alfworld(trajectory: Trajectory, *, accepted: bool = True) -> float:
    """Return r_func(s, a) = 1[a ∈ M(s)], PivotRL, arXiv 2603.21383; M(s) as follows is OURS (METHODS 5.4).

    The command has the expert's verb and the classes of its objects and receptacles (names without their numbers: `go to shelf 1` ~
    `go to shelf 3`); or the environment accepted it and it led to the observation that the expert's led to.

    accepted   a command that the environment refused ("Nothing happens.") is never equivalent, whatever its words. From a stored context
               (start=context) only the format can be judged. Off: the words alone decide
    Raises ConfigError when the episode carries no expected action.
    """
    d = decision_of(trajectory)
    alike = command_class(d.action) == command_class(d.expected)
    return float((alike and (d.accepted or not accepted)) or d.reached)


def command_class(command: str) -> str:
    """Return a command without the numbers of things: its verb and classes."""
    return _NUMBER.sub("", plain_words(command))
