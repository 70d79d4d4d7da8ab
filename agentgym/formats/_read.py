"""What the formats share: strict JSON, text made a value by its schema, examples of calls, feedback of bounded length."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ..toolcall import Call, CallError, Spec, find_spec

_SPACE = re.compile(r"[ \t\n\r]*+")
_DIGITS = 300  # of an integer; beyond it no tool can mean it, and Python's own limit depends on a global setting
_EXAMPLES: dict[str, Any] = {"string": "...", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}


class _Refused(ValueError):
    """JSON that Python would read but no other reader has to."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the key {quote(key)} stands twice in one object")
            seen.add(key)
    return out


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"the number {quote(text)} is too large")
    return value


def integer(text: str) -> int:
    """Return an integer of at most 300 digits. Raises ValueError."""
    if len(text) > _DIGITS:
        raise _Refused(f"the number {quote(text)} has too many digits")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=integer)


def quote(text: str, most: int = 60) -> str:
    """Return the start of a text of the model's in quotes: one line, at most `most` + 3 characters."""
    shown = repr(text[:most])
    return shown if len(text) <= most and len(shown) <= most + 2 else shown[:most] + "…" + shown[0]


def check_text(text: str) -> None:
    """Raise CallError for half characters: no file, no request and no tokenizer takes them."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise CallError(f"The text has half a character (a lone surrogate) at position {e.start}.") from None


def load(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the JSON value that begins at `start` and the position after it and the blanks that follow.

    Strict: no NaN or Infinity, no key twice, no half characters. Raises CallError whose text completes "the call is wrong: …".
    """
    begin = _skip(text, start)
    try:
        value, end = _DECODER.raw_decode(text, begin)
        if text.find("\\u", begin, end) >= 0:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as e:
        near = f"near {quote(text[max(begin, e.pos - 20) : e.pos + 20], 40)}" if e.pos < len(text) else "where the text ends"
        raise CallError(f"its JSON breaks at character {e.pos - begin} ({e.msg}), {near}") from None
    except UnicodeEncodeError:
        raise CallError("its JSON has half a character (a lone surrogate)") from None
    except RecursionError:
        raise CallError("its JSON is nested too deeply") from None
    except ValueError as e:
        raise CallError(str(e)) from None
    return value, _skip(text, end)


def _skip(text: str, start: int) -> int:
    blanks = _SPACE.match(text, start)
    return blanks.end() if blanks else start


def load_all(text: str) -> Any:
    """Return the JSON value that is the whole of `text`. Raises CallError as `load` does."""
    value, end = load(text)
    if end < len(text):
        raise CallError(f"its JSON ends at character {end}, but text follows: {quote(text[end:], 40)}")
    return value


def object_of(value: Any) -> dict[str, Any]:
    """Return the arguments of a call: an object, or the JSON text of one. Raises CallError."""
    if isinstance(value, str):
        value = load_all(value)
    if not isinstance(value, dict):
        raise CallError(f'its "arguments" are {_kind(value)}, not a JSON object')
    return value


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


def call_of(value: Any, where: str = "") -> Call:
    """Return the call that {"name": …, "arguments": {…}} means. Raises CallError that names the key that is wrong."""
    if not isinstance(value, dict):
        raise CallError(f"{where}it is {_kind(value)}, not a JSON object")
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise CallError(f'{where}it has no "name" that is a string')
    if "arguments" not in value:
        raise CallError(f'{where}it has no "arguments"')
    return Call(value["name"], object_of(value["arguments"]))


def types_of(schema: dict[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows; the empty set is any."""
    kind = schema.get("type")
    out = {kind} if isinstance(kind, str) else set(kind or ())
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        out |= types_of(part)
    return out


def schema_of(spec: Spec, argument: str) -> dict[str, Any]:
    """Return the schema of an argument; that of anything where the tool has no such argument."""
    schema = spec.parameters.get("properties", {}).get(argument, {})
    return schema if isinstance(schema, dict) else {}


def is_text(spec: Spec, argument: str) -> bool:
    """Return whether an argument may be a string."""
    return "string" in types_of(schema_of(spec, argument))


def required(spec: Spec) -> list[str]:
    """Return the arguments that must be given, in the order of the schema."""
    return [a for a in spec.arguments if a in spec.parameters.get("required", ())]


def convert(text: str, schema: dict[str, Any]) -> Any:
    """Return text as the value that its schema asks for: a string stays as it is, anything else is read as JSON where it can be.

    What cannot be read stays text: the tool's own check says then what it wants.
    """
    if "string" in types_of(schema):
        return text
    try:
        return load_all(text)
    except CallError:
        return text


def example(spec: Spec) -> dict[str, Any]:
    """Return arguments that show how a call of `spec` looks: the required ones, or all where none is."""
    names = required(spec) or spec.arguments
    kinds = {a: next((t for t in _EXAMPLES if t in types_of(schema_of(spec, a))), "string") for a in names}
    return {a: _EXAMPLES[k] for a, k in kinds.items()}


def function(spec: Spec) -> dict[str, Any]:
    """Return a tool as chat templates and APIs describe it."""
    return {"type": "function", "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters}}


def fault(what: str, tools: Sequence[Spec], right: str) -> CallError:
    """Return the feedback on a call: what is wrong, what tools there are, what a right call looks like."""
    known = _cut(", ".join(s.name for s in tools) or "none", 300)
    return CallError(f"{what[0].upper()}{what[1:].rstrip('.')}. Tools: {known}. A right call: {_cut(right, 300)}")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def known_spec(name: str, tools: Sequence[Spec], right: str) -> Spec:
    """Return the tool of that name. Raises CallError that lists what there is and shows a right call."""
    if not tools:
        raise CallError("There is no tool to call.")
    try:
        return find_spec(name, tools)
    except CallError as e:
        raise CallError(f"{_cut(str(e), 600)} A right call: {_cut(right, 300)}") from None


def dump(value: Any, markers: Sequence[str] = ()) -> str:
    """Return a value as JSON on one line; `<` is escaped where one of `markers` would be read as the end of the call.

    Raises ValueError for what JSON does not have.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()  # half characters
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(f"arguments that are no JSON cannot be written: {e}") from None
    return text.replace("<", "\\u003c") if any(m in text for m in markers) else text


def same(one: Sequence[Call], two: Sequence[Call]) -> bool:
    """Return whether two lists of calls mean the same, ids aside; 1, 1.0 and true are three things."""
    if [c.name for c in one] != [c.name for c in two] or any(a.arguments != b.arguments for a, b in zip(one, two, strict=True)):
        return False
    try:
        return all(json.dumps(a.arguments, sort_keys=True) == json.dumps(b.arguments, sort_keys=True) for a, b in zip(one, two, strict=True))
    except (TypeError, ValueError, RecursionError):
        return False


def guess(calls: Sequence[Call]) -> list[Spec]:
    """Return the tools that some calls let one suppose: what `render` goes by where it is not told the real ones."""
    out: dict[str, Spec] = {}
    for call in calls:
        known = out.get(call.name)
        properties = dict(known.parameters["properties"]) if known else {}
        properties |= {a: ({"type": "string"} if isinstance(v, str) else {}) for a, v in call.arguments.items()}
        must = [a for a in call.arguments if not known or a in known.parameters["required"]]
        out[call.name] = Spec(call.name, "", {"type": "object", "properties": properties, "required": must})
    return list(out.values())
