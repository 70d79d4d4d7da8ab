"""Does an action do what the expert's did? For any environment over text: the same words, or the same next observation."""

from __future__ import annotations

from agentgym.types import Trajectory

from ._decision import decision_of, plain_words


def functional_text(trajectory: Trajectory, *, outcome: bool = True) -> float:
    """Return r_func(s, a) = 1[a ∈ M(s)], PivotRL, arXiv 2603.21383; M(s) as follows is OURS.

    The action has the expert's words, case and blanks aside; or, with `outcome`, the environment accepted it and it led to the observation that
    the expert's led to. Raises ConfigError when the episode carries no expected action.
    """
    d = decision_of(trajectory)
    return float(plain_words(d.action) == plain_words(d.expected) or (outcome and d.reached))
