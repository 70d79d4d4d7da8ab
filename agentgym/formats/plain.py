"""One tool call as a line that a person or a small model can write: search highest point of Malaysia · add 1 2 · add(1, b=2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..toolcall import Call, CallError, Reply, Spec
from . import _literal
from ._read import check_text, convert, dump, example, fault, guess, is_text, known_spec, quote, required, same, schema_of

_NAME = re.compile(r"[^\s(]++")
_OPTION = re.compile(r"([A-Za-z_]\w*+)=")
# A word: pieces of it may be quoted, as in a shell, so that they can hold blanks; in "…" a backslash keeps the sign after it.
_WORD = re.compile(r"""(?:[^\s"']++|"(?:[^"\\]|\\.)*+"|'[^']*+')++""", re.DOTALL)
_PIECE = re.compile(r"""[^"']++|"((?:[^"\\]|\\.)*+)"|'([^']*+)'""", re.DOTALL)
_BARE = re.compile(r"""[^\s"'=()]++""")


class plain:
    """Read the whole text as one call: a tool's name, then its arguments.

    `search highest point of Malaysia`: where a tool's only argument, or its only required one, is a string, that is all that follows, as
    it stands (quotes too); options with a name come first (`search topk=5 highest point`). Other tools take words as a shell does
    (`add 1 2`, `add a=1 b=2`, `copy "a b" c`), made numbers or lists where the tool's schema says so. Any tool takes its name with round
    brackets right after it and Python literals inside: `add(1, b=2)`, `search("x")`. Nothing is evaluated.
    """

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return nothing: an argument may have several lines."""
        return ()

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return one line for each tool, with its signature."""
        lines = [f"- {s.signature}: {s.description.strip()}".rstrip(": ") for s in tools]
        right = f", for example: {_right(tools[0])}" if tools else "."
        return "\n".join(["Tools:", *lines, f"Answer with one call and nothing else{right}"])

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the one call that `text` is. Raises CallError where it is none."""
        check_text(text)
        text = text.strip()
        right = _right(tools[0]) if tools else "tool argument"
        found = _NAME.match(text)
        if found is None:
            raise fault("there is no call: the text is empty" if not text else "the text does not begin with a tool's name", tools, right)
        spec = known_spec(found[0], tools, right)
        try:
            return [Call(spec.name, _arguments(spec, text[found.end() :]))]
        except CallError as e:
            raise fault(f"the call of {spec.name} is wrong: {e}", tools, _right(spec)) from None

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the call as `name(key=value)`, which reads back whatever the tool's schema is; with `tools`, in its shortest form.

        Raises ValueError for a thought, for several calls, and for arguments that are no literals.
        """
        if thought or len(calls) != 1:
            raise ValueError(f"plain cannot express {'a thought' if thought else f'{len(calls)} calls'}: the whole text is one call")
        call = calls[0]
        specs = list(tools) or guess(calls)
        spec = next((s for s in specs if s.name == call.name), None)
        named = ", ".join(f"{a}={v!r}" for a, v in call.arguments.items())
        texts = [*(_short(spec, call) if tools and spec else []), f"{call.name}({named})" if named else call.name]
        for text in texts:
            if self._reads_as(text, call, specs):
                return text
        raise ValueError(f"plain cannot express the call {quote(str(call))}: its name, a key or a value does not read back as the same")

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return the replies one after the other, as they are."""
        return "\n".join(r.content for r in replies)

    def _reads_as(self, text: str, call: Call, specs: Sequence[Spec]) -> bool:
        try:
            return same(self.parse(text, specs), [call])
        except CallError:
            return False


def _takes_text(spec: Spec) -> str:
    """Return the argument that all of a call's text is; "" where the tool's arguments are words."""
    must = required(spec)
    only = spec.arguments[0] if len(spec.arguments) == 1 else must[0] if len(must) == 1 else ""
    return only if only and is_text(spec, only) else ""


def _arguments(spec: Spec, rest: str) -> dict[str, Any]:
    """Return the arguments that stand behind a tool's name."""
    if rest.startswith("("):
        if not rest.endswith(")"):
            raise CallError("its round bracket is not closed at the end of the text")
        found = _literal.read(rest[1:-1])
        return _placed(spec, found.positional, found.named)
    rest = rest.strip()
    if not rest:
        return {}
    if not spec.arguments:
        raise CallError(f"the tool takes no argument, but {quote(rest, 40)} follows its name")
    text = _takes_text(spec)
    return _options_then_text(spec, rest, text) if text else _words(spec, rest)


def _options_then_text(spec: Spec, rest: str, text: str) -> dict[str, Any]:
    """Return the options that stand in front, and all that follows them as the argument `text`."""
    out: dict[str, Any] = {}
    pos = 0
    while (found := _OPTION.match(rest, pos)) and found[1] in spec.arguments and found[1] != text:
        word = _WORD.match(rest, found.end())
        if found[1] in out or word is None:
            raise CallError(f"the option {quote(found[1])} {'stands twice' if found[1] in out else 'has no value, or a quote that is not closed'}")
        out[found[1]] = convert(_unquoted(word[0]), schema_of(spec, found[1]))
        pos = word.end()
        pos += len(rest[pos : pos + 1])  # one blank is the border; the text begins after it
        while rest[pos : pos + 1].isspace():
            pos += 1
    return out | {text: rest[pos:]} if pos < len(rest) else out


def _words(spec: Spec, rest: str) -> dict[str, Any]:
    """Return the arguments that words give, in the order of the schema or by name."""
    positional: list[str] = []
    named: dict[str, Any] = {}
    pos = 0
    while pos < len(rest):
        word = _WORD.match(rest, pos)
        if word is None or (word.end() < len(rest) and not rest[word.end()].isspace()):
            raise CallError(f"a quote is not closed: {quote(rest[pos:], 40)}")
        option = _OPTION.match(word[0])
        if option is None:
            positional.append(_unquoted(word[0]))
        elif option[1] in named:
            raise CallError(f"the argument {quote(option[1])} stands twice")
        else:
            named[option[1]] = convert(_unquoted(word[0][option.end() :]), schema_of(spec, option[1]))
        pos = word.end()
        while rest[pos : pos + 1].isspace():
            pos += 1
    values = [convert(v, schema_of(spec, a)) for v, a in zip(positional, spec.arguments, strict=False)]
    return _placed(spec, values + positional[len(values) :], named)


def _unquoted(word: str) -> str:
    return _PIECE.sub(lambda m: re.sub(r"\\(.)", r"\1", m[1], flags=re.DOTALL) if m[1] is not None else m[2] if m[2] is not None else m[0], word)


def _placed(spec: Spec, positional: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return positional and named values by name."""
    if len(positional) > len(spec.arguments):
        raise CallError(f"it has {len(positional)} arguments, but the tool takes {len(spec.arguments)}: {quote(spec.signature, 80)}")
    out = dict(zip(spec.arguments, positional, strict=False))
    for name, value in named.items():
        if name in out:
            raise CallError(f"the argument {quote(name)} is given twice")
        out[name] = value
    return out


def _short(spec: Spec, call: Call) -> list[str]:
    """Return forms of a call without brackets; `render` takes the first one that reads back."""
    if list(call.arguments) == [_takes_text(spec)]:
        return [f"{call.name} {next(iter(call.arguments.values()))}"]
    if list(call.arguments) == spec.arguments[: len(call.arguments)]:
        return [" ".join([call.name, *(_quoted(v if isinstance(v, str) else dump(v)) for v in call.arguments.values())])]
    return []


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _right(spec: Spec) -> str:
    if text := _takes_text(spec):
        return f"{spec.name} {text}"
    return " ".join([spec.name, *(_quoted(v if isinstance(v, str) else dump(v)) for v in example(spec).values())])
