"""Tool calls as tags named like the tools, as in Search-R1: <search> query </search>, <answer> text </answer>."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import ConfigError, did_you_mean
from ..toolcall import Call, CallError, Reply, Spec
from ._read import check_text, convert, dump, example, fault, guess, is_text, load_all, quote, required, same, schema_of

_NAME = re.compile(r"[A-Za-z_][\w.:-]*+")
# No part of an attribute can hold `<` unquoted, so that a tag that is never finished is not read again and again.
_ATTRIBUTE = re.compile(r"""\s++([A-Za-z_][\w.-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>]++))""")
_END = re.compile(r"\s*+(/?)>")
_ENTITY = re.compile("&(amp|lt|gt|quot|apos);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_THINK = re.compile("</?think>")


class _Block(NamedTuple):
    """A tag of a tool's, its attributes as text, and the text inside of it."""

    spec: Spec
    attributes: list[tuple[str, str]]
    body: str


class tags:
    """Read and write calls as tags: the first match of `<(search|answer)>(.*?)</\\1>` over lines, blanks around the text removed (Search-R1).

    The text is the tool's only argument. A tool with several takes a JSON object inside of the tag, or attributes
    (`<add a="1" b="2"></add>`), or text alone as its first required string argument. Text becomes a number or a list where the tool's
    schema says so.

    tools       tag of a tool whose tag is not its name: {finish: answer}
    first       only the first call counts, as in Search-R1; otherwise all of them
    reply       tag around a tool's reply; "" for none. Feedback on a wrong call is always plain text
    reply_blank_lines  a blank line before and after the observation, as in Search-R1 (before and after feedback only a line break)
    think       ask for reasoning inside <think>, and render a thought there instead of as bare text
    skip_think  calls inside <think> do not count. Off, as in Search-R1, whose rule finds them there too
    """

    def __init__(
        self,
        *,
        tools: dict[str, str] | None = None,
        first: bool = True,
        reply: str = "information",
        reply_blank_lines: bool = True,
        think: bool = True,
        skip_think: bool = False,
    ) -> None:
        self.tags = dict(tools or {})
        self.first, self.reply, self.reply_blank_lines = first, reply, reply_blank_lines
        self.think, self.skip_think = think, skip_think
        for tag in (*self.tags.values(), *([reply] if reply else [])):
            if not _NAME.fullmatch(tag):
                raise ConfigError(f"format.tags: {tag!r} is no tag; use letters, digits and _ . : -, a letter first")

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return the closing tags of the tools; nothing where several calls may follow each other."""
        return tuple(f"</{tag}>" for tag in self._by_tag(tools)) if self.first else ()

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return one line for each tool, with its tag."""
        lines = ["Reason inside <think> </think> first. Then call a tool by its tag:" if self.think else "Call a tool by its tag:"]
        for tag, spec in self._by_tag(tools).items():
            lines.append(f"- {self._right(tag, spec)} {spec.description.strip()}".rstrip())
        if self.first:
            lines.append("Only the first call of a message counts.")
        if self.reply:
            lines.append(f"What it gives comes back inside <{self.reply}> </{self.reply}>.")
        return "\n".join(lines)

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the calls in `text`. Raises CallError where there is none or where one that counts is wrong."""
        check_text(text)
        by_tag = {self.tags.get(s.name, s.name): s for s in tools}
        calls: list[Call] = []
        for block in _blocks(_spoken(text) if self.skip_think else text, by_tag):
            try:
                calls.append(_call(block))
            except CallError as e:
                tag = self.tags.get(block.spec.name, block.spec.name)
                raise fault(f"the call of {block.spec.name} is wrong: {e}", tools, self._right(tag, block.spec)) from None
            if self.first:
                break
        if not calls:
            right = " or ".join(self._right(t, s) for t, s in by_tag.items())
            raise fault("there is no complete call in the text", tools, right or "<tool> text </tool>")
        return calls

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the calls as tags. Raises ValueError for what tags cannot say, such as a closing tag inside of the text.

        Without `tools`, a single string argument is taken for the one that the tag's text means; with them this is checked.
        """
        if self.first and len(calls) > 1:
            raise ValueError(f"tags with first=True cannot express {len(calls)} calls in one completion")
        specs = list(tools) or guess(calls)
        body = "\n".join(self._write(c, specs) for c in calls)
        head = (f"<think>{thought}</think>\n" if self.think else f"{thought}\n") if thought else ""
        if not self._reads_as(head + body, calls, specs):
            raise ValueError(f"tags cannot express this: the thought {quote(thought)} holds a call or a <think> tag of its own")
        return head + body

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return what tools gave inside the reply's tag, feedback as it is."""
        tagged = [r for r in replies if r.call is not None and not r.error and self.reply]
        parts = [f"<{self.reply}>{r.content.strip()}</{self.reply}>" if r in tagged else r.content.strip() for r in replies]
        edge = ("\n\n" if tagged else "\n") if self.reply_blank_lines and parts else ""
        return edge + "\n\n".join(parts) + edge

    def _by_tag(self, tools: Sequence[Spec]) -> dict[str, Spec]:
        """Return the tool of each tag. Raises ConfigError where the option `tools` and the tools do not fit."""
        names = [s.name for s in tools]
        for name in self.tags:
            if name not in names:
                raise ConfigError(f"format.tags.tools: there is no tool {name!r}.{did_you_mean(name, names)} Tools: {', '.join(names)}")
        used = {"think", self.reply}
        for name in names:
            tag = self.tags.get(name, name)
            if tag in used or not _NAME.fullmatch(tag):
                raise ConfigError(f"format.tags.tools: the tool {name!r} cannot have the tag {tag!r}: taken, or no tag. Name another one")
            used.add(tag)
        return {self.tags.get(s.name, s.name): s for s in tools}

    def _right(self, tag: str, spec: Spec) -> str:
        if not spec.arguments:
            return f"<{tag}></{tag}>"
        only = required(spec) or spec.arguments
        inside = f" {only[0]} " if len(only) == 1 and (len(spec.arguments) == 1 or is_text(spec, only[0])) else dump(example(spec))
        return f"<{tag}>{inside}</{tag}>"

    def _write(self, call: Call, specs: Sequence[Spec]) -> str:
        """Return the shortest form of a call that reads back as the same call."""
        tag = self.tags.get(call.name, call.name)
        texts = [""] if not call.arguments else []
        if len(call.arguments) == 1:
            (value,) = call.arguments.values()
            texts += [f" {value if isinstance(value, str) else dump(value)} " if value != "" else ""]
        texts.append(dump(call.arguments, (f"</{tag}>", "think>")))
        for text in texts:
            out = f"<{tag}>{text}</{tag}>"
            if self._reads_as(out, [call], specs):
                return out
        raise ValueError(
            f"tags cannot express the call {quote(str(call))}: inside <{tag}> neither its text nor a JSON object reads back as the same arguments "
            f"(text with </{tag}> in it, blanks around it, arguments that the tool does not have)"
        )

    def _reads_as(self, text: str, calls: Sequence[Call], specs: Sequence[Spec]) -> bool:
        try:
            return same(self.parse(text, specs), calls)
        except CallError:
            return False


def _spoken(text: str) -> str:
    """Return the text without what stands in <think>, and without what precedes a </think> that the prompt had opened."""
    out: list[str] = []
    pos, opened = 0, True
    while mark := _THINK.search(text, pos):
        out.append(text[pos : mark.start()])
        if mark[0] == "</think>":
            out = [] if opened else out  # by the prompt, which can do so once
            pos, opened = mark.end(), False
            continue
        opened = False
        end = text.find("</think>", mark.end())
        pos = len(text) if end < 0 else end + len("</think>")
    return "\n".join([*out, text[pos:]])


def _blocks(text: str, by_tag: dict[str, Spec]) -> Iterator[_Block]:
    """Yield what Search-R1's expression matches, in linear time: a tag that is not closed anywhere is looked for once."""
    if not by_tag:
        return
    opening = re.compile("<(" + "|".join(re.escape(t) for t in sorted(by_tag, key=len, reverse=True)) + r")(?=[\s/>])")
    unclosed: set[str] = set()
    pos = 0
    while mark := opening.search(text, pos):
        tag, pos = mark[1], mark.end()
        head = _head(text, pos, len(by_tag[tag].arguments))
        if head is None or (tag in unclosed and not head.closed):
            continue
        end = head.end if head.closed else text.find(f"</{tag}>", head.end)
        if end < 0:
            unclosed.add(tag)
            continue
        yield _Block(by_tag[tag], head.attributes, text[head.end : end])
        pos = end if head.closed else end + len(f"</{tag}>")


class _Head(NamedTuple):
    """The rest of an opening tag: its attributes, whether it closes itself, where it ends."""

    attributes: list[tuple[str, str]]
    closed: bool
    end: int


def _head(text: str, pos: int, arguments: int) -> _Head | None:
    """Return the rest of an opening tag; None where it is none. A tool with one argument has the bare tag only: Search-R1's rule."""
    if arguments == 1:
        return _Head([], False, pos + 1) if text[pos] == ">" else None
    attributes: list[tuple[str, str]] = []
    while arguments and (found := _ATTRIBUTE.match(text, pos)):
        raw = next(g for g in found.groups()[1:] if g is not None)
        attributes.append((found[1], _ENTITY.sub(lambda m: _ENTITIES[m[1]], raw)))
        pos = found.end()
    end = _END.match(text, pos)
    return _Head(attributes, end[1] == "/", end.end()) if end else None


def _call(block: _Block) -> Call:
    """Return the call that a block means. Raises CallError."""
    spec, body = block.spec, block.body.strip()
    given: dict[str, Any] = {}
    for name, text in block.attributes:
        if name in given:
            raise CallError(f"the attribute {quote(name)} stands twice")
        given[name] = convert(text, schema_of(spec, name)) if name in spec.arguments else text
    if given and not body:
        return Call(spec.name, given)
    if not spec.arguments:
        if body:
            raise CallError(f"the tool takes no argument, but the tag holds {quote(body, 40)}")
        return Call(spec.name)
    return Call(spec.name, given | _inside(spec, body, given))


def _inside(spec: Spec, body: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the text of a tag gives: a JSON object of them, or the one that the text means."""
    must = [a for a in required(spec) if a not in given]
    open_ = [a for a in spec.arguments if a not in given]
    if len(spec.arguments) == 1:
        meant: str | None = spec.arguments[0]
    else:
        meant = next((a for a in (*must, *open_) if is_text(spec, a)), None)
    if not body:
        return {meant: ""} if must == [meant] and meant is not None and is_text(spec, meant) else {}
    if body.startswith("{") and not given and not (len(spec.arguments) == 1 and is_text(spec, spec.arguments[0])):
        found = _object(spec, body, alone=meant is not None and len(must) <= 1)
        if found is not None:
            return found
    if meant is None:
        raise CallError(f"the tag holds {quote(body, 40)}, which is no JSON object of its arguments ({', '.join(open_) or 'all given'})")
    return {meant: convert(body, schema_of(spec, meant))}


def _object(spec: Spec, body: str, *, alone: bool) -> dict[str, Any] | None:
    """Return the arguments that a JSON object gives; None where the text is rather the one argument that can stand `alone`."""
    try:
        value = load_all(body)
    except CallError:
        if alone:
            return None
        raise
    return None if alone and not set(value) <= set(spec.arguments) else value
