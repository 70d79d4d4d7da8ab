"""Tool calls of API models: the `tool_calls` of an answer, kept as JSON text, and the way to and from the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..toolcall import Call, CallError, Reply, Spec
from ..types import Message
from ._read import call_of, check_text, dump, example, fault, function, known_spec, load_all, object_of, same

_NOT_RUN = "No result: this call was not run."


class openai:
    """Read and write the answer of a chat-completions API: `{"content": …, "tool_calls": [{"id", "type", "function"}]}` as JSON text.

    That text is what the policy writes as its completion (`from_wire`). A bare call `{"name": …, "arguments": {…}}` or a list of them is
    read too. Tools travel in the request (`tools_field`), so instructions are one sentence.
    """

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return nothing: the endpoint ends a call itself."""
        return ()

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return one sentence; the tools themselves are a field of the request."""
        return f"Every answer calls at least one of the tools: {', '.join(s.name for s in tools)}."

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the calls of an answer, with the endpoint's ids. Raises CallError where one is wrong: then none is made."""
        check_text(text)
        right = _right(tools)
        if text.lstrip()[:1] not in ("{", "["):
            raise fault("the answer calls no tool", tools, right)
        try:
            calls = _read(load_all(text))
        except CallError as e:
            raise fault(f"the call is wrong: {e}", tools, right) from None
        if not calls:
            raise fault("the answer calls no tool", tools, right)
        for call in calls:
            known_spec(call.name, tools, right)
        return calls

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the canonical text; the thought is its content. Raises ValueError for arguments that JSON does not have."""
        wire = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": dump(c.arguments)}} for c in calls]
        text = dump({"content": thought, "tool_calls": wire})
        try:
            found = _read(load_all(text))
        except CallError as e:
            raise ValueError(f"openai cannot express these calls: {e}") from None
        if not same(found, calls):
            raise ValueError("openai cannot express these calls: they have keys that are no strings, or values that JSON changes")
        return text

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return a JSON list of tool messages, or the bare feedback where no call could be read."""
        if all(r.call is None for r in replies):
            return "\n".join(r.content for r in replies)
        rows = [{"role": "tool", "tool_call_id": r.call.id if r.call else "", "content": r.content} for r in replies]
        return json.dumps(rows, ensure_ascii=False)


def _read(value: Any) -> list[Call]:
    """Return the calls of an answer that was read as JSON. Raises CallError that says which one is wrong."""
    rows = value.get("tool_calls", [value] if "name" in value else []) if isinstance(value, dict) else value
    if not isinstance(rows, list):
        if rows is None:
            return []
        raise CallError('"tool_calls" is not a list')
    return [_one(row, f"call {i}: " if len(rows) > 1 else "") for i, row in enumerate(rows, 1)]


def _one(row: Any, where: str) -> Call:
    if not isinstance(row, dict) or "function" not in row:
        return call_of(row, where)
    inner = row["function"]
    # Endpoints write "" or nothing for a call without arguments.
    if isinstance(inner, dict) and inner.get("arguments") in (None, ""):
        inner = {**inner, "arguments": {}}
    try:
        call = call_of(inner)
    except CallError as e:
        raise CallError(f"{where}{e}") from None
    return Call(call.name, call.arguments, row["id"] if isinstance(row.get("id"), str) else "")


def _right(tools: Sequence[Spec]) -> str:
    return json.dumps({"name": tools[0].name, "arguments": example(tools[0])}, ensure_ascii=False) if tools else '{"name": ..., "arguments": {}}'


def tools_field(tools: Sequence[Spec]) -> list[dict[str, Any]]:
    """Return the field `tools` of a request."""
    return [function(s) for s in tools]


def from_wire(message: dict[str, Any]) -> str:
    """Return the canonical text of an API's answer; without tool calls it is the content, on which the environment gives feedback."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(p.get("text") or "" for p in content if isinstance(p, dict))
    rows = message.get("tool_calls")
    if not rows:
        return content
    wire = [{"id": i, "type": "function", "function": _function(r)} for i, r in zip(_ids(rows, "call"), rows, strict=True)]
    return json.dumps({"content": content, "tool_calls": wire}, ensure_ascii=False)


def _function(row: dict[str, Any]) -> dict[str, str]:
    inner = row.get("function") or {}
    arguments = inner.get("arguments")
    if not isinstance(arguments, str):  # some endpoints send an object
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    name = inner.get("name")
    return {"name": name if isinstance(name, str) else "", "arguments": arguments}


def _ids(rows: Sequence[dict[str, Any]], prefix: str) -> list[str]:
    """Return one id for each call, its own where it has one that is new; two calls never share one."""
    taken = {r["id"] for r in rows if isinstance(r.get("id"), str)}
    out: dict[str, None] = {}
    for i, row in enumerate(rows):
        own = row.get("id")
        if isinstance(own, str) and own and own not in out:
            out[own] = None
            continue
        name = f"{prefix}_{i}"
        while name in taken:
            name += "_"
        out[name] = None
    return list(out)


def to_wire(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return API messages: a canonical answer becomes an assistant message with tool calls, the observation after it one tool message for each.

    The API wants exactly one tool message for every id. Where the observation is no list of replies (feedback on an answer that could not
    be read), each call gets its text. Arguments that are no JSON object are sent as {"unreadable": text}: servers whose chat template
    decodes the history would refuse the whole request otherwise.
    """
    out: list[dict[str, Any]] = []
    i = 0
    while i < len(messages):
        m = messages[i]
        answer = _answer(m) if m.role == "assistant" else None
        i += 1
        if answer is None:
            out.append({"role": m.role, "content": m.content})
            continue
        observed = messages[i].content if i < len(messages) and messages[i].role in ("user", "tool") else None
        i += observed is not None
        out += _exchange(answer, observed, f"call_{i}")
    return out


def _answer(message: Message) -> dict[str, Any] | None:
    """Return what a canonical answer holds; None for any other text."""
    if not message.content.lstrip().startswith("{"):
        return None
    try:
        value = load_all(message.content)
    except CallError:
        return None
    rows = value.get("tool_calls")
    return value if isinstance(rows, list) and rows and all(isinstance(r, dict) and isinstance(r.get("function"), dict) for r in rows) else None


def _exchange(answer: dict[str, Any], observed: str | None, prefix: str) -> list[dict[str, Any]]:
    """Return the assistant message of an answer, one tool message for each of its calls, and what no call was asked for."""
    rows = answer["tool_calls"]
    ids = _ids(rows, prefix)
    wire = [{"id": i, "type": "function", "function": _readable(_function(r))} for i, r in zip(ids, rows, strict=True)]
    content = answer.get("content")
    out: list[dict[str, Any]] = [{"role": "assistant", "content": content if isinstance(content, str) and content else None, "tool_calls": wire}]
    replies = _replies(observed)
    if replies is None:
        return out + [{"role": "tool", "tool_call_id": i, "content": _NOT_RUN if observed is None else observed} for i in ids]
    # A reply's id is that of the completion's text; `ids` differ from these only where an id was missing or stood twice.
    for new, row in zip(ids, rows, strict=True):
        own = row.get("id") if isinstance(row.get("id"), str) else ""
        at = next((k for k, (i, _) in enumerate(replies) if i == own), None)
        out.append({"role": "tool", "tool_call_id": new, "content": _NOT_RUN if at is None else replies.pop(at)[1]})
    rest = "\n".join(text for _, text in replies)
    return out + ([{"role": "user", "content": rest}] if rest else [])


def _readable(inner: dict[str, str]) -> dict[str, str]:
    try:
        object_of(inner["arguments"] or {})
    except CallError:
        return {**inner, "arguments": json.dumps({"unreadable": inner["arguments"]}, ensure_ascii=False)}
    return inner if inner["arguments"] else {**inner, "arguments": "{}"}


def _replies(text: str | None) -> list[tuple[str, str]] | None:
    """Return (id, content) of each reply that `openai.replies` wrote; None for any other text."""
    if text is None or not text.startswith("["):
        return None
    try:
        rows = load_all(text)
    except CallError:
        return None
    good = bool(rows) and all(isinstance(r, dict) and r.get("role") == "tool" and isinstance(r.get("content"), str) for r in rows)
    return [(str(r.get("tool_call_id", "")), r["content"]) for r in rows] if good else None
