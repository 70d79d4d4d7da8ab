"""Tool-call formats on anything: parse raises CallError only and takes linear time; what render writes is read back as it was."""

from __future__ import annotations

import contextlib
import string
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.formats.hermes import hermes
from agentgym.formats.openai import from_wire, openai, to_wire
from agentgym.formats.plain import plain
from agentgym.formats.tags import tags
from agentgym.toolcall import Call, CallError, Format, Spec
from agentgym.types import Message

FORMATS: dict[str, Format] = {
    "hermes": hermes(),
    "hermes one": hermes(parallel=False, think=True),
    "tags": tags(),
    "tags all": tags(first=False, skip_think=True),
    "openai": openai(),
    "plain": plain(),
}
EVERY = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
QUICK = settings(max_examples=120, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def tool(name: str, must: list[str], /, **types: str) -> Spec:
    return Spec(name, "", {"type": "object", "properties": {a: {"type": t} if t else {} for a, t in types.items()}, "required": must})


TOOLS = [
    tool("search", ["query"], query="string"),
    tool("find", ["query"], query="string", topk="integer"),
    tool("add", ["a", "b"], a="integer", b="number"),
    tool("look", []),
    tool("put", ["value"], value=""),
    tool("set", [], options="object", names="array", flag="boolean", word="string"),
]

# -- nothing but CallError ----------------------------------------------------------------------------------------------------------------

PIECES = [
    *"{}[]()<>,:='\"\\ \n\t\0é\ud800\U0001f600",
    *(
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<search>",
        "</search>",
        "<add ",
        "</add>",
        "<add>",
        "<set",
        "/>",
        "<look/>",
        ' a="',
        "a='1'",
    ),
    *(
        '"name": ',
        '"arguments": ',
        '"search"',
        '{"name": "add", "arguments": {"a": 1}}',
        '"tool_calls"',
        '"function"',
        "null",
        "NaN",
        "1e999",
        "-1",
        "0.5",
    ),
    *("search ", "add(", "add ", "put(", "b=2", "topk=3 ", "True", "\\u", "\\ud83d", "\\x4", "9" * 400),
]
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), st.text(st.characters(codec=None), max_size=60))


@EVERY
@QUICK
@given(text=TEXTS)
def test_any_text_gives_calls_or_feedback(form: Format, text: str) -> None:
    try:
        calls = form.parse(text, TOOLS)
    except CallError as e:
        assert 0 < len(str(e)) < 1500
        str(e).encode()  # feedback goes to files and endpoints
    else:
        assert calls and all(c.name in {t.name for t in TOOLS} and isinstance(c.arguments, dict) for c in calls)
        repr(calls).encode()


@QUICK
@given(texts=st.lists(TEXTS, max_size=4), roles=st.lists(st.sampled_from(["user", "assistant", "tool", "system"]), min_size=4, max_size=4))
def test_any_chat_goes_to_the_wire_with_one_reply_for_each_call(texts: list[str], roles: list[Any]) -> None:
    texts = [*texts, from_wire({"content": "x", "tool_calls": [{"function": {"name": t, "arguments": t}} for t in texts]})]
    wire = to_wire([Message(r, t) for r, t in zip(roles, texts, strict=False)])
    for i, m in enumerate(wire):
        calls = m.get("tool_calls", [])
        told = wire[i + 1 : i + 1 + len(calls)]
        assert [c["id"] for c in calls] == [t.get("tool_call_id") for t in told] and len({c["id"] for c in calls}) == len(calls)


# -- linear time --------------------------------------------------------------------------------------------------------------------------

UNITS = {
    "open tags": "<tool_call>",
    "open tags, broken": "<tool_call>{",
    "open tags, open string": '<tool_call>{"a": "',
    "open tags, list": '<tool_call>["',
    "open tags and ends of thought": '<tool_call>{"</think>',
    "ends of thought": "</think>\n",
    "starts of thought": "<think>",
    "thoughts": "<think></think>",
    "tags": "<search>",
    "tags of all tools": "<search><find><add><look><set>",
    "closed tags": "<search></find>",
    "attributes": '<add a="',
    "attributes, both quotes": "<set word=\" names='",
    "attributes, unquoted": "<add a=",
    "attributes, many": ' a="1"',
    "braces": "{",
    "brackets": "[",
    "round brackets": "(",
    "objects": '{"a":',
    "pairs": '"a": 1, ',
    "double quotes": '"',
    "both quotes": "\"'",
    "backslashes": "\\",
    "escapes": "\\u0041",
    "digits": "1",
    "signs": "-",
    "blanks": " ",
    "words": "add ",
    "options": "a=1 ",
    "options of a text": "topk=1 ",
    "equal signs": "=",
    "commas": "1,",
    "nul": "\0",
    "letters": "z",
    "calls": '<tool_call>{"name":"look","arguments":{}}</tool_call>',
    "tag calls": "<look></look>",
    "list of calls": '{"name":"look","arguments":{}},',
}
HEADS: dict[str, list[str]] = {
    "hermes": [
        "",
        "<tool_call>",
        '<tool_call>{"name": "put", "arguments": {"value": ',
        '<tool_call>{"name": "put", "arguments": {"value": "',
        "<think>",
    ],
    "tags": ["", "<think>", "<search>", "<add", "<set>{"],
    "openai": ["", '[{"name": "put", "arguments": {"value": [', '{"tool_calls": ['],
    "plain": ["search ", "find ", "add ", "put(", 'put("'],
}


def cost(form: Format, text: str, times: int = 1) -> float:
    """Return the CPU seconds of the fastest of some runs."""
    best = float("inf")
    for _ in range(times):
        begin = time.thread_time()
        with contextlib.suppress(CallError):
            form.parse(text, TOOLS)
        best = min(best, time.thread_time() - begin)
    return best


@EVERY
def test_time_is_linear_in_hostile_texts(form: Format) -> None:
    """Twice the text costs about twice the time; what is over in some milliseconds is not compared."""
    for unit in UNITS.values():
        for head in HEADS[type(form).__name__]:
            whole, half = (head + unit * (size // len(unit)) for size in (100_000, 50_000))
            first = cost(form, whole)
            if first < 0.1:
                continue
            # Measured again where a neighbour on the machine was in the way.
            costs = [(cost(form, half, 3), cost(form, whole, 3)) for _ in range(3)]
            assert min(b for _, b in costs) < 1.0, (head, unit, first, costs)
            assert min(b / a for a, b in costs) < 3.2, (head, unit, first, costs)


# -- round trips --------------------------------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.lists(
        st.sampled_from(
            [
                "<",
                "</search>",
                "</t0>",
                "</tool_call>",
                "<think>",
                "</think>",
                '"',
                "'",
                "\\",
                "\n",
                " ",
                "=",
                "a=1",
                "(",
                "{",
                "5",
                "null",
                "é",
                "\0",
            ]
        ),
        max_size=4,
    ).map("".join),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), WORDS)
VALUES = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)), max_leaves=6)
KEYS = st.text(string.ascii_lowercase, min_size=1, max_size=4)
TYPES = st.sampled_from(["string", "string", "integer", "number", "boolean", "array", "object", ""])


@st.composite
def tools_and_calls(draw: st.DrawFn) -> tuple[list[Spec], list[Call]]:
    """Draw tools and calls of them; half of the values are of the argument's type, and arguments may be missing or unknown."""
    tools, calls = [], []
    for i in range(draw(st.integers(1, 3))):
        types = draw(st.dictionaries(KEYS, TYPES, max_size=3))
        tools.append(tool(f"t{i}", [a for a in types if draw(st.booleans())], **types))
        given_ = {a: draw(WORDS if types[a] == "string" and draw(st.booleans()) else VALUES) for a in types if draw(st.integers(0, 4))}
        if draw(st.integers(0, 9)) == 0:
            given_[draw(KEYS)] = draw(VALUES)
        calls.append(Call(f"t{i}", given_))
    return tools, calls


def strict(value: Any) -> Any:
    """Return a value that compares with its types: 1, 1.0 and True are three things."""
    if isinstance(value, dict):
        return {k: strict(v) for k, v in value.items()}
    return [strict(v) for v in value] if isinstance(value, list) else (type(value).__name__, value)


def back(form: Format, text: str, tools: list[Spec]) -> list[Any]:
    return [(c.name, strict(c.arguments)) for c in form.parse(text, tools)]


def as_they_are(calls: list[Call]) -> list[Any]:
    return [(c.name, strict(c.arguments)) for c in calls]


@pytest.mark.parametrize("form", [hermes(), hermes(think=True), openai()], ids=["hermes", "hermes think", "openai"])
@QUICK
@given(drawn=tools_and_calls(), thought=WORDS)
def test_json_formats_express_every_call(form: Format, drawn: tuple[list[Spec], list[Call]], thought: str) -> None:
    tools, calls = drawn
    assert back(form, form.render(calls), tools) == as_they_are(calls)
    try:
        text = form.render(calls, thought)
    except ValueError as e:
        assert "think>" in thought and "cannot express" in str(e)  # such a thought hides the calls
    else:
        assert back(form, text, tools) == as_they_are(calls)


@QUICK
@given(drawn=tools_and_calls())
def test_plain_expresses_every_call_with_and_without_its_tools(drawn: tuple[list[Spec], list[Call]]) -> None:
    tools, calls = drawn
    for call in calls:
        for known in (tools, []):
            assert back(plain(), plain().render([call], tools=known), tools) == as_they_are([call])


@pytest.mark.parametrize("skip", [False, True])
@QUICK
@given(drawn=tools_and_calls(), thought=WORDS)
def test_tags_are_read_back_or_refused(skip: bool, drawn: tuple[list[Spec], list[Call]], thought: str) -> None:
    tools, calls = drawn
    form = tags(first=False, skip_think=skip)
    for call in calls:
        try:
            text = form.render([call], tools=tools)
        except ValueError as e:
            assert "tags cannot express" in str(e)
            # A tool of several arguments takes a JSON object, which holds anything but unknown keys; a tool of one takes text.
            names = tools[int(call.name[1:])].arguments
            assert len(names) < 2 or not call.arguments or not set(call.arguments) <= set(names)
        else:
            assert back(form, text, tools) == as_they_are([call])
    try:
        text = form.render(calls, thought, tools=tools)
    except ValueError:
        return
    assert back(form, text, tools) == as_they_are(calls)


@QUICK
@given(query=WORDS)
def test_tags_express_a_text_without_its_closing_tag(query: str) -> None:
    call = Call("search", {"query": query})
    fits = query == query.strip() and "</search>" not in query
    try:
        assert back(tags(), tags().render([call]), TOOLS) == as_they_are([call])
        assert fits
    except ValueError:
        assert not fits


def test_a_small_thread_stack_is_enough() -> None:
    """Environments run in threads: hostile nesting must not crash one."""
    before = threading.stack_size(512 * 1024)
    try:
        failed: list[BaseException] = []

        def work() -> None:
            for form in FORMATS.values():
                for text in (
                    '<tool_call>{"a":' * 1,
                    "put(" + "[" * 50_000,
                    '{"a":' * 50_000,
                    "<tool_call>" + "[" * 50_000,
                    "<set>" + '{"a":' * 50_000 + "</set>",
                ):
                    try:
                        form.parse(text, TOOLS)
                    except CallError:
                        pass
                    except BaseException as e:
                        failed.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert not thread.is_alive() and not failed
    finally:
        threading.stack_size(before)
