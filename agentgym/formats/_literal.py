"""Read `1, b="x", c=[true]` as a call's arguments: Python's and JSON's literals, nothing evaluated, linear time, any thread.

Not `ast`: CPython 3.11's parser counts its recursion wrongly beside other threads (a SystemError at random), and warns of escapes.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ..toolcall import CallError
from ._read import integer, quote

_TOKEN = re.compile(r"""\s*+(?:(?P<mark>[\[\]{}(),=:])|(?P<text>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')|(?P<word>[^\s\[\]{}(),=:"']++))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": "", **{c: c for c in "\\'\"/"}}
_INTEGER = re.compile(r"[-+]?[0-9]++")
_FLOAT = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_CONSTANTS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_DEPTH = 40
_PAIRS = {"[": "]", "(": ")", "{": "}"}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class Arguments(NamedTuple):
    """The values without and with a name."""

    positional: list[Any]
    named: dict[str, Any]


def read(text: str) -> Arguments:
    """Return the arguments that the inside of `name(…)` gives. Raises CallError that says at which character it breaks."""
    return _Reader(_tokens(text)).arguments()


def _tokens(text: str) -> list[_Token]:
    out: list[_Token] = []
    pos, end = 0, len(text.rstrip())
    while pos < end:
        found = _TOKEN.match(text, pos)
        if found is None:
            raise CallError(f"a quote is not closed: {quote(text[pos:].lstrip(), 40)}")
        kind = str(found.lastgroup)
        out.append(_Token(kind, found[kind], found.start(kind)))
        pos = found.end()
    return [*out, _Token("end", "", end)]


class _Reader:
    """Read tokens one after the other; nesting is bounded, so that no text can exhaust the stack."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def arguments(self) -> Arguments:
        out = Arguments([], {})
        while self._now.kind != "end":
            if self._now.kind == "word" and self.tokens[self.at + 1].text == "=" and self.tokens[self.at + 1].kind == "mark":
                name = self._now.text
                self.at += 2
                if name in out.named:
                    raise CallError(f"the argument {quote(name)} stands twice")
                out.named[name] = self._value(0)
            else:
                if out.named:
                    raise CallError("an argument without a name follows one with a name")
                out.positional.append(self._value(0))
            self._comma("")
        return out

    @property
    def _now(self) -> _Token:
        return self.tokens[self.at]

    def _is(self, mark: str) -> bool:
        return self._now.text == mark if self._now.kind == "mark" else mark == "" and self._now.kind == "end"

    def _comma(self, end: str) -> None:
        """Go past a comma; at the end there may be none."""
        if self._is(","):
            self.at += 1
        elif not self._is(end):
            raise self._broken(f"expected ',' or {end!r}" if end else "expected ','")

    def _broken(self, what: str) -> CallError:
        got = f"got {quote(self._now.text, 40)}" if self._now.kind != "end" else "the text ends"
        return CallError(f"its arguments break at character {self._now.at} ({what}, {got})")

    def _value(self, depth: int) -> Any:
        token = self._now
        if token.kind == "end" or (token.kind == "mark" and token.text not in _PAIRS):
            raise self._broken("expected a value")
        if depth > _DEPTH:
            raise CallError("its arguments are nested too deeply")
        if token.kind == "word":
            value = self._word(token.text)
            self.at += 1
            return value
        self.at += 1
        if token.kind == "text":
            return _ESCAPE.sub(_unescape, token.text[1:-1])
        return self._object(depth) if token.text == "{" else self._list(_PAIRS[token.text], depth)

    def _word(self, word: str) -> Any:
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if _INTEGER.fullmatch(word):
            try:
                return integer(word)
            except ValueError as e:
                raise CallError(str(e)) from None
        if _FLOAT.fullmatch(word) and math.isfinite(float(word)):
            return float(word)
        raise self._broken("expected a value; text stands in quotes")

    def _list(self, end: str, depth: int) -> list[Any]:
        out = []
        while not self._is(end):
            out.append(self._value(depth + 1))
            self._comma(end)
        self.at += 1
        return out

    def _object(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while not self._is("}"):
            if self._now.kind != "text":
                raise self._broken("expected a key in quotes")
            key = self._value(depth + 1)
            if not self._is(":"):
                raise self._broken("expected ':'")
            self.at += 1
            if key in out:
                raise CallError(f"the key {quote(key)} stands twice in one object")
            out[key] = self._value(depth + 1)
            self._comma("}")
        self.at += 1
        return out


def _unescape(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return _ESCAPES.get(found[4], found[0])  # as in Python, an escape that is none stays as it is
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise CallError(f"{found[0]} is no character")
    return chr(number)
