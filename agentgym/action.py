"""How a completion becomes an action. Each format is one function: completion text → Parsed."""

from __future__ import annotations

import re
from typing import NamedTuple

__plugins__ = ["plain", "tags"]


class Parsed(NamedTuple):
    """The action that was found, and whether the completion kept to the format."""

    action: str
    valid: bool


# What a context tells the model about the format when its own `instruction` is not set.
INSTRUCTION = {
    "plain": "",
    "tags": "First reason step by step inside <think> </think>. Then give exactly one action inside <action> </action>.",
}


def plain(completion: str) -> Parsed:
    """The whole completion is the action, blanks around it removed."""
    action = completion.strip()
    return Parsed(action, bool(action))


def tags(completion: str, *, think: bool = True, lower: bool = True) -> Parsed:
    """The action stands between the first <action> and the next </action>; <think>…</think> must be there too if `think`.

    As in verl-agent, the text is lower-cased (`lower`) and a completion without its tags is invalid; the environment then gets the last
    30 characters, which it will refuse.
    """
    text = completion.lower() if lower else completion
    found = re.search(r"<action>(.*?)</action>", text, re.DOTALL)
    thought = not think or ("<think>" in text and "</think>" in text)
    if found is None:
        return Parsed(text[-30:].strip(), False)
    return Parsed(found.group(1).strip(), thought and bool(found.group(1).strip()))
