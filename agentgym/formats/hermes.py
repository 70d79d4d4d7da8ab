"""Tool calls as Qwen and Hermes models write them: JSON between <tool_call> tags."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ..toolcall import Call, CallError, Reply, Spec
from ._read import call_of, check_text, dump, example, fault, function, known_spec, load, quote, same

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_MARK = re.compile("<tool_call>|<think>|</think>")

# The tools block of the chat templates of Qwen2.5 and Qwen3, character by character: models know it from their training.
_BEFORE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
_AFTER = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class hermes:
    """Read and write `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, once or several times, with any text around.

    What stands in <think> does not count, nor what precedes a `</think>` whose start was in the prompt. As in vLLM's parser of this name,
    the last `</tool_call>` may be missing and the keys are `name` and `arguments` only (`parameters` is refused: a model that learned it
    would fail there); unlike it, arguments may be the JSON text of an object, and a string in them may hold the tags themselves.

    think     ask for reasoning inside <think>, and render a thought there instead of as bare text
    parallel  allow several calls in a completion; otherwise generation stops after the first one, and only that one counts
    """

    def __init__(self, *, think: bool = False, parallel: bool = True) -> None:
        self.think = think
        self.parallel = parallel

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return the end of a call, unless another call may follow it."""
        return () if self.parallel else (CLOSE,)

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return the tools block of Qwen's chat templates, and a line for each option that differs from it."""
        lines = [_BEFORE, *(json.dumps(function(s), ensure_ascii=False) for s in tools)]
        out = "\n".join(lines) + _AFTER
        if not self.parallel:
            out += "\n\nCall one function at a time."
        return out + ("\n\nReason inside <think> </think> before you call a function." if self.think else "")

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the calls in `text`. Raises CallError where there is none or where any of them is wrong: then none is made."""
        check_text(text)
        calls, wrong = _scan(text)
        if wrong and (self.parallel or not calls):
            raise fault(f"the call is wrong: {wrong}", tools, _right(tools))
        if not calls:
            raise fault(f"there is no {OPEN} outside of <think>", tools, _right(tools))
        calls = calls if self.parallel else calls[:1]
        for call in calls:
            known_spec(call.name, tools, _right(tools))
        return calls

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the calls as Qwen's chat templates write them. Raises ValueError for a thought that would be read as a call or hide one."""
        if not self.parallel and len(calls) > 1:
            raise ValueError(f"hermes with parallel=False cannot express {len(calls)} calls in one completion")
        body = "\n".join(_write(c) for c in calls)
        head = (f"<think>\n{thought}\n</think>\n\n" if self.think else f"{thought}\n") if thought else ""
        text = head + body
        found, wrong = _scan(text)
        if wrong or not same(found, calls):
            raise ValueError(f"hermes cannot express these calls after the thought {quote(thought)}: they read back as {quote(str(wrong or found))}")
        return text

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return each reply inside <tool_response>, as Qwen's chat templates do."""
        return "\n".join(f"<tool_response>\n{r.content}\n</tool_response>" for r in replies)


def _scan(text: str) -> tuple[list[Call], str]:
    """Return the calls outside of thinking and what is wrong with the first that cannot be read. Linear: no part is read three times."""
    calls: list[Call] = []
    wrong, opened = "", True
    pos = 0
    while mark := _MARK.search(text, pos):
        pos = mark.end()
        if mark[0] == "</think>":
            if opened:  # by the prompt, which can do so once
                calls, wrong, opened = [], "", False
        elif mark[0] == "<think>":
            opened = False
            end = text.find("</think>", pos)
            pos = len(text) if end < 0 else end + len("</think>")
        elif not wrong:
            try:
                call, pos = _read(text, pos)
                calls.append(call)
            except CallError as e:
                wrong = str(e)
    return calls, wrong


def _read(text: str, start: int) -> tuple[Call, int]:
    """Return the call whose JSON begins at `start`, and the position after its closing tag."""
    value, end = load(text, start)
    call = call_of(value)
    if not text.startswith(CLOSE, end) and end < len(text):
        raise CallError(f"after its JSON object stands {quote(text[end : end + 40], 40)} instead of {CLOSE}")
    return call, end + len(CLOSE)


def _write(call: Call) -> str:
    body = f'{{"name": {dump(call.name)}, "arguments": {dump(call.arguments, (CLOSE, "think>"))}}}'
    return f"{OPEN}\n{body}\n{CLOSE}"


def _right(tools: Sequence[Spec]) -> str:
    return _write(Call(tools[0].name, example(tools[0]))) if tools else f'{OPEN}{{"name": ..., "arguments": {{}}}}{CLOSE}'
