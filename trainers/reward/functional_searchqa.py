"""Does a search-QA action do what the expert's did? The same answer, or a query that finds the expert's document."""

from __future__ import annotations

import re

from agentgym.answers import normalise, token_f1
from agentgym.errors import ConfigError
from agentgym.formats.hermes import hermes
from agentgym.formats.openai import openai
from agentgym.formats.tags import tags
from agentgym.toolcall import CallError, Spec
from agentgym.types import Trajectory

from ._decision import decision_of

_TEXT = {"type": "string"}
TOOLS = [
    Spec("search", "", {"type": "object", "properties": {"query": _TEXT}, "required": ["query"]}),
    Spec("answer", "", {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]}, final=True),
]
FORMATS = (tags(), hermes(), openai())
_DOCUMENT = re.compile(r"Doc \d+(?=\(Title: )")
_LINE_END = re.compile(r'\n|\\n|</information>|</tool_response>|"\}')  # `\n` in two characters, `"}`: replies that are JSON


def functional_searchqa(trajectory: Trajectory, *, gold: int = 1, top: int = 3, f1: float = 0.6) -> float:
    """Return r_func(s, a) = 1[a ∈ M(s)], PivotRL, arXiv 2603.21383; M(s) as follows is OURS (METHODS 5.4).

    `answer`: the same answer, normalised as SQuAD does. `search`: what the agent found has the expert's gold documents among its first `top`.
    Documents are compared by title and first line, as the environment prints them. Both protocols are read, tags and tool calls.

    gold  the first so many documents that the expert found count as gold: nobody says which they are, and the first one is the document that
          the hop needs in 99 % of the embedded questions' searches
    f1    from a stored context (start=context) nothing was found: then the query's token-F1 with the expert's must be so high

    Raises ConfigError when the episode carries no expected action, or one that is no call.
    """
    d = decision_of(trajectory)
    mine, theirs = read_call(d.action), read_call(d.expected)
    if theirs is None:
        raise ConfigError(f"functional_searchqa: the expected action is no search and no answer: {d.expected[:200]!r}; is this search-QA?")
    if mine is None or mine[0] != theirs[0]:
        return 0.0
    if theirs[0] == "answer":
        return float(normalise(mine[1]) == normalise(theirs[1]))
    if d.led_to is None:
        return float(token_f1(mine[1], theirs[1]) >= f1)
    found, wanted = documents(d.led_to)[:top], documents(d.expected_led_to)[:gold]
    return float(bool(wanted) and all(any(_same(w, f) for f in found) for w in wanted))


def read_call(action: str) -> tuple[str, str] | None:
    """Return ("search", query) or ("answer", text) of the first call in an action; None when there is none."""
    for form in FORMATS:
        try:
            call = form.parse(action, TOOLS)[0]
        except CallError:
            continue
        text = call.arguments.get("query" if call.name == "search" else "text")
        return (call.name, text) if isinstance(text, str) else None
    return None


def documents(observation: str) -> list[str]:
    """Return title and first line of each document in an observation, at most 200 characters of them, in order."""
    return [_LINE_END.split(part)[0].strip().removesuffix("…").strip()[:200] for part in _DOCUMENT.split(observation)[1:]]


def _same(one: str, two: str) -> bool:
    """Documents are cut where there is no room, so the shorter one may be the beginning of the other."""
    return one.startswith(two) or two.startswith(one)
