"""In what way a result is wrong: the kind of an example, and a short phrase for results that are too long to be shown."""

from __future__ import annotations

import ast
from typing import Any

from .examples import Example

_MISSING = object()
SHORT = 110  # letters of a value that is shown as it is


def kind(example: Example) -> str:
    """Return one of: crash, accepts, other_error, truth, none, case, space, text, number, missing, extra, order, items, keys, type, value."""
    good, bad = example.expected, example.actual
    if bad[0] == "error":
        return "other_error" if good[0] == "error" else "crash"
    if good[0] == "error":
        return "accepts"
    if good[0] in ("true", "false"):
        return "truth"
    if good[0] == "object" or bad[0] == "object":
        return "type"
    a, b = value(good), value(bad)
    if a is _MISSING or b is _MISSING:
        return "none" if bad == ("value", "None") else "value"
    return _kind(a, b)


def value(result: tuple[str, ...]) -> Any:
    """Return the Python value that a result's text is, or a mark where it is none."""
    try:
        return [ast.literal_eval(item) for item in result[1:]] if result[0] == "items" else ast.literal_eval(result[1])
    except (ValueError, SyntaxError, IndexError, TypeError, MemoryError, RecursionError):
        return _MISSING


def _kind(a: Any, b: Any) -> str:
    if b is None:
        return "none"
    if isinstance(a, bool) and isinstance(b, bool):
        return "truth"
    if type(a) is not type(b) and not (isinstance(a, int | float) and isinstance(b, int | float)):
        return "type"
    if isinstance(a, str | bytes):
        return _kind_of_text(str(a), str(b))
    if isinstance(a, int | float):
        return "number"
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return "missing" if len(b) < len(a) else "extra"
        return "order" if sorted(map(repr, a)) == sorted(map(repr, b)) else "items"
    if isinstance(a, set):
        return "missing" if b < a else "extra" if a < b else "items"
    if isinstance(a, dict):
        return "keys" if a.keys() != b.keys() else "value"
    return "value"


def _kind_of_text(a: str, b: str) -> str:
    if a.lower() == b.lower():
        return "case"
    return "space" if "".join(a.split()) == "".join(b.split()) else "text"


def contrast(good: tuple[str, ...], bad: tuple[str, ...]) -> str | None:
    """Return where two results part, for results too long to be shown: "line 3 is `…`, it should be `…`"; None where nothing short can be said."""
    a, b = value(good), value(bad)
    if isinstance(a, str) and isinstance(b, str):
        return _texts(a, b)
    if isinstance(a, list | tuple) and type(a) is type(b):
        if len(a) != len(b):
            return f"it has {_count(len(b), 'item')}, it should have {len(a)}"
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
        return None if at is None else _pair(f"item {at}", a[at], b[at])
    if isinstance(a, dict) and isinstance(b, dict):
        return _mappings(a, b)
    return None


def _texts(a: str, b: str) -> str | None:
    one, two = a.split("\n"), b.split("\n")
    if len(one) > 1 or len(two) > 1:
        at = next((i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), None)
        if at is None:
            return f"it has {_count(len(two), 'line')}, it should have {len(one)}"
        return _pair(f"line {at + 1}", one[at], two[at])
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, at - 15)
    return f"from letter {start} on it is {b[start : at + 25]!r}, it should be {a[start : at + 25]!r}"


def _mappings(a: dict[Any, Any], b: dict[Any, Any]) -> str | None:
    for key in a:
        if key not in b:
            return _fits(f"the key {key!r} is missing")
    for key in b:
        if key not in a:
            return _fits(f"there is a key {key!r} too many")
    key = next((k for k in a if a[k] != b[k]), _MISSING)
    return "the keys are in another order" if key is _MISSING else _pair(f"the value of {key!r}", a[key], b[key])


def _pair(what: str, a: Any, b: Any) -> str | None:
    return _fits(f"{what} is `{b!r}`, it should be `{a!r}`")


def _fits(text: str) -> str | None:
    return text if len(text) <= 2 * SHORT and "\n" not in text else None


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
