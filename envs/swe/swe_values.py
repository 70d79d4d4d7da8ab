"""How values are written as Python. Copied next to the tree under test with swe_names.py."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from swe_names import PLAIN, Names, is_test
from swe_statement import function

_ROOM = {True: 400, False: 1500}  # letters of a value: in a call, and of what came of it
_HEAVY = 2000
_HERE = (os.getcwd(), os.environ.get("TMPDIR", "/tmp"))
_OPAQUE = ("<built-in", "<function", "<bound method", "<module")
_SHARED = ("builtins", "operator", "math", "collections", "functools", "datetime", "decimal", "fractions")  # modules whose names everybody knows


class Values:
    """The objects of the package that a test has, as variables or as the calls that made them; and all other values."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.variable: dict[int, str] = {}
        self.inline: dict[int, str] = {}
        self.kept: list[object] = []  # an id is an object's only while it lives
        self.needs: set[int] = set()  # the variables that were written
        self.heavy: set[int] = set()  # objects whose repr is long: not asked for again

    def show(self, value: Any, expression: bool = True, depth: int = 0) -> tuple[str, bool]:
        """Return a value as Python text, and whether that text says all of it.

        expression  an object of the package is written as what made it, or as a variable; otherwise as its own repr
        """
        kind = type(value)
        if isinstance(value, PLAIN) and kind in PLAIN:
            return _cut(repr(value), expression)
        if kind in (list, tuple, set, frozenset, dict) and depth < 5:
            return self._container(value, expression, depth)
        if expression and id(value) in self.variable:
            if id(value) in self.inline:
                return self.inline[id(value)], True
            self.needs.add(id(value))
            return self.variable[id(value)], True
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return self._callable(value)
        if isinstance(value, types.ModuleType):
            return value.__name__, True
        if is_test_made(value):
            return kind.__name__, False
        if id(value) in self.names.things:
            return self.names.things[id(value)].rpartition(".")[2], True
        return self._repr(value, expression)

    def _repr(self, value: object, expression: bool) -> tuple[str, bool]:
        """Return the repr of any object; it is clear where it is one line of what could be Python, without an address."""
        if id(value) in self.heavy:
            return type(value).__name__, False
        try:
            text = repr(value)
        except Exception as e:
            return f"<{type(value).__name__}: {type(e).__name__}>", False
        if len(text) > _HEAVY:
            self.heavy.add(id(value))
            self.kept.append(value)
        odd = "\n" in text or " at 0x" in text or "<class" in text
        if odd or text.startswith("<" if expression else _OPAQUE):
            return type(value).__name__, False
        return _cut(text, expression)

    def _container(self, value: Any, expression: bool, depth: int) -> tuple[str, bool]:
        parts = [self.show(v, expression, depth + 1) for v in (value.values() if isinstance(value, dict) else value)][:200]
        clear = all(ok for _, ok in parts) and len(value) <= 200
        texts = [text for text, _ in parts]
        if isinstance(value, dict):
            keys = [self.show(k, expression, depth + 1) for k in value][:200]
            clear = clear and all(ok for _, ok in keys)
            texts = [f"{k}: {v}" for (k, _), v in zip(keys, texts, strict=True)]
        elif isinstance(value, set | frozenset):
            texts.sort()
        inner = ", ".join(texts)
        if isinstance(value, tuple):
            out = f"({inner},)" if len(texts) == 1 else f"({inner})"
        elif isinstance(value, list):
            out = f"[{inner}]"
        else:
            out = f"{{{inner}}}" if texts or isinstance(value, dict) else "set()"
            out = f"frozenset({out if texts else ''})" if isinstance(value, frozenset) else out
        text, short = _cut(out, expression)
        return text, clear and short

    def _callable(self, value: Any) -> tuple[str, bool]:
        name, module = getattr(value, "__name__", ""), getattr(value, "__module__", "") or ""
        known = self.names.things.get(id(value))
        if known:
            return known.rpartition(".")[2], True
        if module in _SHARED:
            return (name if module == "builtins" else f"{module}.{name}"), True
        if isinstance(value, types.FunctionType) and is_test(value.__code__.co_filename):
            text = function(value)
            return (name, False) if text is None else _cut(text, True)
        public = getattr(sys.modules.get(module), name, None) is value and self.names.own(module)
        return name or "function", public


def is_test_made(value: object) -> bool:
    """Return whether a class, or the class of an object, was defined by the tests."""
    kind = value if isinstance(value, type) else type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(file) and is_test(str(file))


def same(a: object, b: object) -> bool:
    try:
        return a is b or (type(a) is type(b) and isinstance(a, PLAIN) and a == b)
    except Exception:
        return False


def _cut(text: str, expression: bool) -> tuple[str, bool]:
    """Return a text that is not too long, and whether it is whole and says nothing of this machine."""
    room = _ROOM[expression]
    return (text, not any(place in text for place in _HERE)) if len(text) <= room else (f"{text[:room]}…", False)
