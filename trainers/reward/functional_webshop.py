"""Does a WebShop action do what the expert's did? The same click, or a search with much the same words."""

from __future__ import annotations

import re

from agentgym.answers import token_f1
from agentgym.types import Trajectory

from ._decision import decision_of, plain_words

_ACTION = re.compile(r"\s*(search|click)\[(.*)\]\s*", re.DOTALL | re.IGNORECASE)


def functional_webshop(trajectory: Trajectory, *, f1: float = 0.6) -> float:
    """Return r_func(s, a) = 1[a ∈ M(s)], PivotRL, arXiv 2603.21383; M(s) as follows is OURS (METHODS 5.4).

    `click[id]`: the same id, case aside; `search[query]`: token-F1 with the expert's query ≥ `f1`. Anything else, or a click for a search, is 0.
    Raises ConfigError when the episode carries no expected action.
    """
    d = decision_of(trajectory)
    mine, theirs = _ACTION.fullmatch(d.action), _ACTION.fullmatch(d.expected)
    if mine is None or theirs is None or mine[1].lower() != theirs[1].lower():
        return 0.0
    if mine[1].lower() == "click":
        return float(plain_words(mine[2]) == plain_words(theirs[2]))
    return float(token_f1(mine[2], theirs[2]) >= f1)
