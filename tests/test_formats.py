"""Tool-call formats: one test for each rule, with strings worked by hand."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.formats.hermes import hermes
from agentgym.formats.openai import from_wire, openai, to_wire, tools_field
from agentgym.formats.plain import plain
from agentgym.formats.tags import tags
from agentgym.toolcall import Call, CallError, Format, Reply, Spec
from agentgym.types import Message


def spec(name: str, must: tuple[str, ...] = (), /, **types: Any) -> Spec:
    properties = {a: {"type": t} if isinstance(t, str) else t for a, t in types.items()}
    return Spec(name, f"Do {name}.", {"type": "object", "properties": properties, "required": list(must or types)})


SEARCH = spec("search", query="string")
ANSWER = spec("answer", text="string")
ADD = spec("add", a="integer", b="integer")
LOOK = Spec("look", "Look around.", {"type": "object", "properties": {}})
FIND = spec("find", ("query",), query="string", topk="integer")
WRITE = spec("write", path="string", text="string")
WAIT = spec("wait", seconds="number")
OPTIONS = spec("set", options="object")
ANY = spec("put", value={})
MAYBE = spec("maybe", word={"anyOf": [{"type": "string"}, {"type": "null"}]}, many={"anyOf": [{"type": "integer"}, {"type": "null"}]})
TOOLS = [SEARCH, ANSWER, ADD, LOOK, FIND, WRITE, WAIT, OPTIONS, ANY, MAYBE]
FORMATS: list[Format] = [hermes(), tags(), openai(), plain()]


def wrong(form: Format, text: str, tools: list[Spec] = TOOLS) -> str:
    with pytest.raises(CallError) as e:
        form.parse(text, tools)
    assert len(str(e.value)) < 1500
    return str(e.value)


def one(form: Format, text: str, tools: list[Spec] = TOOLS) -> Call:
    (call,) = form.parse(text, tools)
    return call


def H(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


# -- all ----------------------------------------------------------------------------------------------------------------------------------


def test_the_registry_knows_them() -> None:
    assert set(registry.names("format")) >= {"hermes", "tags", "openai", "plain"}
    form = registry.bind("format", "tags", {"tools": {"answer": "final"}, "first": False})()
    assert form.parse("<final> x </final>", TOOLS) == [Call("answer", {"text": "x"})]


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: type(f).__name__)
def test_feedback_names_the_tools_and_shows_a_call_and_echoes_little(form: Format) -> None:
    for text in (
        "",
        "   ",
        "zzz " * 1000,
        '{"name": "' + "z" * 1000 + '", "arguments": {}}',
        "<tool_call>{" + "z" * 1000,
        "z" * 1000 + "()",
        "search(",
    ):
        said = wrong(form, text)
        assert "search" in said and "A right call: " in said
        assert max((len(m) for m in re.findall("z[z ]*", said)), default=0) <= 80
    assert "tool" in wrong(form, "anything", [])


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: type(f).__name__)
def test_half_characters_are_refused(form: Format) -> None:
    assert "lone surrogate" in wrong(form, H("search", '{"query": "\ud800"}'))


@pytest.mark.parametrize("form", [hermes(), openai()], ids=["hermes", "openai"])
@pytest.mark.parametrize(
    "arguments, said",
    [
        ('{"query": NaN}', "NaN is no JSON number"),
        ('{"query": -Infinity}', "-Infinity is no JSON number"),
        ('{"query": 1e999}', "'1e999' is too large"),
        ('{"query": ' + "1" * 5000 + "}", "too many digits"),
        ('{"query": 1, "query": 2}', "the key 'query' stands twice"),
        ('{"query": "\\ud800"}', "half a character"),
        ('{"query": "a\nb"}', "Invalid control character"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", '"arguments" are a list'),
        ("null", '"arguments" are null'),
        ('"[1]"', '"arguments" are a list'),
        ('{"query": "x"', "its JSON breaks at character"),
    ],
)
def test_strict_json(form: Format, arguments: str, said: str) -> None:
    text = H("search", arguments)
    assert said in wrong(form, text if isinstance(form, hermes) else text[12:-13])


def test_the_place_where_json_breaks() -> None:
    # {"name": "add", "arguments": {"a": 1 "b": 2}}: the comma is missing after character 36
    assert "its JSON breaks at character 37 (Expecting ',' delimiter), near " in wrong(hermes(), H("add", '{"a": 1 "b": 2}'))
    assert "where the text ends" in wrong(hermes(), '<tool_call>\n{"name": "add", "arguments": {"a"')


def test_stops() -> None:
    assert [f.stops([SEARCH, ANSWER]) for f in FORMATS] == [(), ("</search>", "</answer>"), (), ()]
    assert hermes(parallel=False).stops([SEARCH]) == ("</tool_call>",)
    assert tags(tools={"answer": "final"}).stops([SEARCH, ANSWER]) == ("</search>", "</final>")
    assert tags(first=False).stops([SEARCH]) == ()


# -- hermes -------------------------------------------------------------------------------------------------------------------------------


def qwen(name: str) -> Any:
    """Return a chat template of Qwen's as trl carries it, rendered the way transformers does."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("trl is not installed: its copies of Qwen's templates are not here")
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    return env.from_string((Path(found.origin).parent / "chat_templates" / f"{name}.jinja").read_text("utf-8"))


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_hermes_is_what_qwens_template_renders(name: str) -> None:
    form, tools = hermes(), [ADD, Spec("größe", 'Say "ü" <b>.', {"type": "object", "properties": {"x": {"type": "string"}}})]
    calls = [Call("add", {"a": 1, "b": 2}), Call("größe", {"x": 'ü "<b>"\n'})]
    replies = [Reply(calls[0], "3"), Reply(calls[1], "ü")]
    wire = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    ask = [{"role": "system", "content": "SYS"}, {"role": "user", "content": "Q"}]
    theirs = [*ask, {"role": "assistant", "content": "T", "tool_calls": wire}, *({"role": "tool", "content": r.content} for r in replies)]
    ours = [
        {"role": "system", "content": f"SYS\n\n{form.instructions(tools)}"},
        ask[1],
        {"role": "assistant", "content": form.render(calls, "T")},
        {"role": "user", "content": form.replies(replies)},
    ]
    template = qwen(name)
    assert template.render(messages=ours) == template.render(messages=theirs, tools=tools_field(tools))


def test_hermes_instructions_by_hand() -> None:
    tool = '{"type": "function", "function": {"name": "look", "description": "Look around.", "parameters": {"type": "object", "properties": {}}}}'
    text = hermes().instructions([LOOK])
    assert text.startswith("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n")
    assert f"\n<tools>\n{tool}\n</tools>\n\n" in text
    assert text.endswith('<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>')
    assert "<think>" in hermes(think=True).instructions([LOOK]) and "one function at a time" in hermes(parallel=False).instructions([LOOK])


def test_hermes_reads_one_or_several_with_text_around() -> None:
    two = "I add.\n" + H("add", '{"a": 1, "b": 2}') + " and <b>look</b> " + H("look", "{}") + " done"
    assert hermes().parse(two, TOOLS) == [Call("add", {"a": 1, "b": 2}), Call("look")]
    assert hermes(parallel=False).parse(two, TOOLS) == [Call("add", {"a": 1, "b": 2})]
    assert hermes(parallel=False).parse(two[:-30], TOOLS) == [Call("add", {"a": 1, "b": 2})]  # what follows the first call is never read


def test_hermes_does_not_count_thinking() -> None:
    look, add = H("look", "{}"), H("add", '{"a": 1, "b": 2}')
    assert one(hermes(), f"<think>maybe {look}</think>{add}").name == "add"
    assert one(hermes(), f"{add}<think>or {look}").name == "add"
    assert "no <tool_call> outside of <think>" in wrong(hermes(), f"<think>{look}")
    assert one(hermes(), f"the prompt opened it: {look} or <tool_call> </think>{add}").name == "add"
    assert "no <tool_call>" in wrong(hermes(), f"{look}</think>")
    assert one(hermes(), f"</think>{add}</think>").name == "add"  # the prompt opened one thought, not two


def test_hermes_takes_what_the_models_write() -> None:
    assert one(hermes(), '<tool_call>{"name": "look", "arguments": {}}').name == "look"  # the end was cut off, or was the stop string
    assert one(hermes(), H("search", r'"{\"query\": \"x\"}"')).arguments == {"query": "x"}
    assert one(hermes(), H("search", '{"query": "</tool_call> <think> </think>"}')).arguments == {"query": "</tool_call> <think> </think>"}
    assert one(hermes(), '<tool_call>{"id": 7, "name": "look", "arguments": {}}</tool_call>') == Call("look")
    assert one(hermes(), H("add", '{"a": "one", "z": [null]}')).arguments == {"a": "one", "z": [None]}  # the tool checks, not the format


def test_hermes_says_what_is_wrong() -> None:
    assert 'has no "arguments"' in wrong(hermes(), '<tool_call>{"name": "look", "parameters": {}}</tool_call>')
    assert 'no "name" that is a string' in wrong(hermes(), '<tool_call>{"arguments": {}}</tool_call>')
    assert "is a list, not a JSON object" in wrong(hermes(), "<tool_call>[]</tool_call>")
    assert "stands '}\\n</tool_call>' instead of </tool_call>" in wrong(hermes(), H("look", "{}}"))
    assert "no tool 'loook'. Did you mean 'look'" in wrong(hermes(), H("loook", "{}"))
    assert "no tool 'fly'" in wrong(hermes(), H("look", "{}") + H("fly", "{}"))
    assert "Expecting value" in wrong(hermes(), H("look", "{}") + "<tool_call>look</tool_call>")


def test_hermes_renders() -> None:
    assert hermes().render([Call("look")]) == '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert hermes().render([Call("look")], "Hm.") == 'Hm.\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    assert hermes(think=True).render([Call("look")], "Hm.").startswith("<think>\nHm.\n</think>\n\n<tool_call>")
    text = hermes().render([Call("search", {"query": "a </tool_call> é"})])
    assert text.count("</tool_call>") == 1 and "é" in text and one(hermes(), text).arguments == {"query": "a </tool_call> é"}
    for thought in ("<tool_call>", H("look", "{}"), "<think>"):
        with pytest.raises(ValueError, match="hermes cannot express these calls after the thought"):
            hermes().render([Call("look")], thought)
    hermes(think=True).render([Call("look")], H("add", "{}"))  # inside <think> it does no harm
    with pytest.raises(ValueError, match="cannot express 2 calls"):
        hermes(parallel=False).render([Call("look"), Call("look")])
    for bad in ({"query": float("nan")}, {"query": {1}}, {"query": (1,)}, {1: 2}, {"query": "\ud800"}):
        with pytest.raises(ValueError):
            hermes().render([Call("search", bad)])


def test_hermes_replies() -> None:
    replies = [Reply(Call("look"), "A room."), Reply(None, "Wrong.", error=True)]
    assert hermes().replies(replies) == "<tool_response>\nA room.\n</tool_response>\n<tool_response>\nWrong.\n</tool_response>"


# -- tags ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<think>hm</think>\n<search> highest point\nof Malaysia </search> and <answer> x </answer>",
        "<answer> a <search> b </search> </answer>",
        "<search> never closed <answer> Beijing </answer>",
        "<search> a <answer> b </search>",
        "<think> <search> in thought </search> </think> <answer> x </answer>",
        "<search></search><answer>x</answer>",
        "<search > x </search> <answer> y </answer>",
        '<search query="x"></search> <answer> y </answer>',
        "<Search> x </Search> <answer>y</answer>",
        "</search> <search> <search> x </search>",
        "< search> x </search><answer>\x00\n\u2028y</answer>",
    ],
)
def test_tags_is_search_r1s_rule(text: str) -> None:
    found = re.search(r"<(search|answer)>(.*?)</\1>", text, re.DOTALL)
    assert found is not None
    call = one(tags(), text, [SEARCH, ANSWER])
    assert (call.name, next(iter(call.arguments.values()))) == (found[1], found[2].strip())


def test_tags_first_or_all() -> None:
    text = "<search> a </search> then <search>b</search> <answer>c</answer>"
    assert tags().parse(text, TOOLS) == [Call("search", {"query": "a"})]
    assert tags(first=False).parse(text, TOOLS) == [Call("search", {"query": "a"}), Call("search", {"query": "b"}), Call("answer", {"text": "c"})]
    assert tags().parse("<look></look><add>broken</add>", TOOLS) == [Call("look")]
    assert "The call of add is wrong" in wrong(tags(first=False), "<look></look><add>broken</add>")


def test_tags_can_skip_thinking() -> None:
    text = "<think> <search> no </search> </think> <search> yes </search> <think> <answer> no </answer>"
    assert tags(skip_think=True, first=False).parse(text, TOOLS) == [Call("search", {"query": "yes"})]
    assert one(tags(skip_think=True), "<search> no </search> </think> <search> yes </search>").arguments == {"query": "yes"}
    assert one(tags(), text).arguments == {"query": "no"}
    assert "no complete call" in wrong(tags(skip_think=True), "<sea<think></think>rch> x </search>")


@pytest.mark.parametrize(
    "text, arguments",
    [
        ('<add>{"a": 1, "b": 2}</add>', {"a": 1, "b": 2}),
        ('<add a="1" b="2"></add>', {"a": 1, "b": 2}),
        ("<add\n a = '1' b=2 />", {"a": 1, "b": 2}),
        ('<add a="one"></add>', {"a": "one"}),
        ("<add></add>", {}),
        ("<look></look>", {}),
        ("<look/>", {}),
        ("<find> highest point </find>", {"query": "highest point"}),
        ('<find topk="3"> highest point </find>', {"query": "highest point", "topk": 3}),
        ('<find>{"query": "x", "topk": 3}</find>', {"query": "x", "topk": 3}),
        ("<find>{braces}</find>", {"query": "{braces}"}),
        ('<find>{"other": 1}</find>', {"query": '{"other": 1}'}),
        ("<find></find>", {"query": ""}),
        ('<write path="a.py">print("<b>")</write>', {"path": "a.py", "text": 'print("<b>")'}),
        ('<write path="&lt;a &amp; &quot;b&quot;&gt; &nbsp;" text="7"></write>', {"path": '<a & "b"> &nbsp;', "text": "7"}),
        ("<write>only one</write>", {"path": "only one"}),
        ("<wait> 1.5 </wait>", {"seconds": 1.5}),
        ('<wait>{"seconds": 2}</wait>', {"seconds": 2}),
        ("<wait>long</wait>", {"seconds": "long"}),
        ("<wait></wait>", {}),
        ('<search>{"query": "x"}</search>', {"query": '{"query": "x"}'}),
        ("<search> 5 </search>", {"query": "5"}),
        ('<set>{"k": 1}</set>', {"options": {"k": 1}}),
        ('<set>{"options": {"k": 1}}</set>', {"options": {"k": 1}}),
        ("<put>[1]</put>", {"value": [1]}),
        ("<put>word</put>", {"value": "word"}),
        ('<maybe word="null" many="null"></maybe>', {"word": "null", "many": None}),
    ],
)
def test_tags_arguments(text: str, arguments: dict[str, Any]) -> None:
    assert one(tags(), text).arguments == arguments


def test_tags_says_what_is_wrong() -> None:
    nothing = wrong(tags(), "<search> x", [SEARCH, ANSWER])
    assert nothing == (
        "There is no complete call in the text. Tools: search, answer. A right call: <search> query </search> or <answer> text </answer>"
    )
    assert 'A right call: <add>{"a": 1, "b": 1}</add>' in wrong(tags(), "<add>1 2</add>")
    assert "its JSON breaks at character" in wrong(tags(), '<write>{"path": </write>')
    assert "its JSON ends at character 3, but text follows: 'x'" in wrong(tags(), "<write>{} x</write>")
    assert "takes no argument, but the tag holds 'x'" in wrong(tags(), "<look>x</look>")
    assert "'a' stands twice" in wrong(tags(), '<add a="1" a="2"></add>')
    assert "no complete call" in wrong(tags(), "<add something></add>")
    assert "all given" in wrong(tags(), '<add a="1" b="2">3</add>')


def test_tags_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"there is no tool 'anser'\. Did you mean 'answer'"):
        tags(tools={"anser": "final"}).instructions(TOOLS)
    for mapping in ({"search": "answer"}, {"search": "information"}, {"search": "think"}):
        with pytest.raises(ConfigError, match="cannot have the tag"):
            tags(tools=mapping).stops(TOOLS)
    for options in ({"reply": "a b"}, {"tools": {"search": ""}}):
        with pytest.raises(ConfigError, match="is no tag"):
            tags(**options)


def test_tags_instructions() -> None:
    assert tags().instructions([SEARCH, ADD]) == (
        "Reason inside <think> </think> first. Then call a tool by its tag:\n"
        "- <search> query </search> Do search.\n"
        '- <add>{"a": 1, "b": 1}</add> Do add.\n'
        "Only the first call of a message counts.\n"
        "What it gives comes back inside <information> </information>."
    )
    assert tags(think=False, first=False, reply="").instructions([LOOK]) == "Call a tool by its tag:\n- <look></look> Look around."


def test_tags_replies() -> None:
    doc, feedback, failed = Reply(Call("search"), " Doc 1 \n"), Reply(None, "Wrong.", error=True), Reply(Call("search"), "No index.", error=True)
    assert tags().replies([doc]) == "\n\n<information>Doc 1</information>\n\n"
    assert tags(reply="result", reply_blank_lines=False).replies([doc]) == "<result>Doc 1</result>"
    assert tags(reply="").replies([doc]) == "\nDoc 1\n"
    assert tags().replies([feedback]) == "\nWrong.\n" and tags().replies([failed]) == "\nNo index.\n"
    assert tags().replies([doc, failed]) == "\n\n<information>Doc 1</information>\n\nNo index.\n\n"
    assert tags().replies([]) == ""


def test_tags_renders() -> None:
    assert tags().render([Call("search", {"query": "x"})], "Hm.") == "<think>Hm.</think>\n<search> x </search>"
    assert tags(think=False).render([Call("look")], "Hm.") == "Hm.\n<look></look>"
    assert tags(tools={"answer": "final"}).render([Call("answer", {"text": "x"})]) == "<final> x </final>"
    assert tags().render([Call("add", {"a": 1, "b": 2})]) == '<add>{"a": 1, "b": 2}</add>'
    assert tags().render([Call("wait", {"seconds": 2.5})], tools=TOOLS) == "<wait> 2.5 </wait>"
    assert tags().render([Call("wait", {"seconds": "2"})], tools=TOOLS) == '<wait>{"seconds": "2"}</wait>'
    assert tags().render([Call("find", {"topk": "5"})], tools=TOOLS) == '<find>{"topk": "5"}</find>'
    text = tags().render([Call("write", {"path": "a", "text": "</write>"})])
    assert text.count("</write>") == 1 and one(tags(), text).arguments["text"] == "</write>"
    for query in ("a </search> b", " blank", "blank ", "\n"):
        with pytest.raises(ValueError, match="tags cannot express the call"):
            tags().render([Call("search", {"query": query})])
    with pytest.raises(ValueError, match="tags cannot express the call"):
        tags().render([Call("search", {"topk": 5})], tools=TOOLS)
    with pytest.raises(ValueError, match="the thought"):
        tags().render([Call("search", {"query": "x"})], "or <search> y </search>")
    assert one(tags(skip_think=True), tags(skip_think=True).render([Call("look")], "or <look> y </look>")) == Call("look")
    with pytest.raises(ValueError, match="2 calls"):
        tags().render([Call("look"), Call("look")])
    assert tags(first=False).render([Call("look"), Call("look")]) == "<look></look>\n<look></look>"


# -- openai -------------------------------------------------------------------------------------------------------------------------------


def answer(*rows: tuple[str, str, str], content: str = "") -> str:
    calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in rows]
    return json.dumps({"content": content, "tool_calls": calls})


def test_openai_reads_answers_and_bare_calls() -> None:
    assert openai().parse(answer(("c1", "add", '{"a": 1, "b": 2}'), ("c2", "look", "")), TOOLS) == [
        Call("add", {"a": 1, "b": 2}, "c1"),
        Call("look", {}, "c2"),
    ]
    assert one(openai(), ' {"name": "look", "arguments": {}} ') == Call("look")
    assert openai().parse('[{"name": "look", "arguments": {}}, {"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}]', TOOLS)[1].arguments == {
        "query": "x"
    }
    assert one(openai(), '{"tool_calls": [{"function": {"name": "look", "arguments": {}}}]}') == Call("look")


def test_openai_says_what_is_wrong() -> None:
    for text in ("I think so.", "[]", "{}", '{"content": "x", "tool_calls": null}', '{"content": "x"}'):
        assert wrong(openai(), text).startswith("The answer calls no tool. Tools: ")
    assert "call 2: its JSON breaks at character 5" in wrong(openai(), answer(("c1", "look", "{}"), ("c2", "add", '{"a":')))
    assert 'call 1: it has no "name"' in wrong(openai(), answer(("c1", "", "{}"), ("c2", "look", "{}")))
    assert '"tool_calls" is not a list' in wrong(openai(), '{"tool_calls": 5}')
    assert "call 2: it is null" in wrong(openai(), '[{"name": "look", "arguments": {}}, null]')
    assert "text follows: 'and more'" in wrong(openai(), '{"name": "look", "arguments": {}} and more')
    assert "no tool 'fly'" in wrong(openai(), answer(("c1", "fly", "{}")))


def test_openai_instructions_and_tools() -> None:
    assert openai().instructions([SEARCH, ANSWER]) == "Every answer calls at least one of the tools: search, answer."
    assert tools_field([LOOK]) == [{"type": "function", "function": {"name": "look", "description": "Look around.", "parameters": LOOK.parameters}}]


def test_from_wire() -> None:
    text = from_wire({"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]})
    assert json.loads(text) == {"content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}
    assert from_wire({"content": "Hello."}) == "Hello." and from_wire({"content": None, "tool_calls": []}) == ""
    assert from_wire({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}) == "ab"
    rows = [{"function": {"name": "look"}}, {"id": "call_0", "function": {"name": "add", "arguments": {"a": 1}}}, {"id": "call_0", "function": {}}]
    calls = json.loads(from_wire({"tool_calls": rows}))["tool_calls"]
    assert [c["id"] for c in calls] == ["call_0_", "call_0", "call_2"]
    assert [c["function"] for c in calls] == [
        {"name": "look", "arguments": "{}"},
        {"name": "add", "arguments": '{"a": 1}'},
        {"name": "", "arguments": "{}"},
    ]


def ids(wire: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls and those of the tool messages."""
    asked = [c["id"] for m in wire for c in m.get("tool_calls", ())]
    return asked, [m["tool_call_id"] for m in wire if m["role"] == "tool"]


def test_to_wire_gives_every_call_its_reply() -> None:
    text = answer(("c1", "look", "{}"), ("c2", "add", '{"a": 1, "b": 2}'), content="Hm.")
    calls = openai().parse(text, TOOLS)
    observed = openai().replies([Reply(calls[0], "A room."), Reply(calls[1], "3")])
    assert to_wire(
        [Message("system", "S"), Message("user", "Q"), Message("assistant", text), Message("user", observed), Message("assistant", "Bye.")]
    ) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "Hm.", "tool_calls": json.loads(text)["tool_calls"]},
        {"role": "tool", "tool_call_id": "c1", "content": "A room."},
        {"role": "tool", "tool_call_id": "c2", "content": "3"},
        {"role": "assistant", "content": "Bye."},
    ]


def test_to_wire_after_a_call_that_was_malformed() -> None:
    text = answer(("c1", "look", "{}"), ("c2", "add", '{"a":'))
    feedback = openai().replies([Reply(None, wrong(openai(), text), error=True)])
    wire = to_wire([Message("assistant", text), Message("user", feedback)])
    assert ids(wire) == (["c1", "c2"], ["c1", "c2"]) and {m["content"] for m in wire[1:]} == {feedback}
    sent = wire[0]["tool_calls"][1]["function"]["arguments"]
    assert json.loads(sent) == {"unreadable": '{"a":'}  # servers decode the arguments of the history


def test_to_wire_after_fewer_replies_than_calls() -> None:
    text = answer(("c1", "answer", "{}"), ("c2", "look", "{}"))
    wire = to_wire([Message("assistant", text), Message("user", openai().replies([Reply(Call("answer", {}, "c1"), "ok")]))])
    assert [m["content"] for m in wire[1:]] == ["ok", "No result: this call was not run."] and ids(wire)[1] == ["c1", "c2"]
    assert ids(to_wire([Message("assistant", text)])) == (["c1", "c2"], ["c1", "c2"])
    twice = to_wire([Message("assistant", text), Message("assistant", text), Message("user", "x")])
    assert ids(twice)[1] == ["c1", "c2", "c1", "c2"]


def test_to_wire_makes_ids_where_they_are_missing() -> None:
    calls = [Call("look"), Call("add", {"a": 1, "b": 2})]
    text = openai().render(calls)
    observed = openai().replies([Reply(calls[0], "A room."), Reply(calls[1], "3")])
    wire = to_wire([Message("assistant", text), Message("user", observed)] * 2)
    asked, told = ids(wire)
    assert asked == told and len(set(asked)) == 4
    assert [m["content"] for m in wire if m["role"] == "tool"] == ["A room.", "3"] * 2


def test_to_wire_leaves_the_rest_alone() -> None:
    for content in ("Hello.", '{"a": 1}', '[{"name": "look", "arguments": {}}]', '{"tool_calls": []}', '{"tool_calls": [1]}', "{broken", "[" * 5000):
        chat = [Message("user", "Q"), Message("assistant", content), Message("user", "[1]")]
        assert to_wire(chat) == [{"role": m.role, "content": m.content} for m in chat]
    text = answer(("c1", "look", "{}"))
    extra = openai().replies([Reply(Call("look", {}, "c1"), "A room."), Reply(None, "Note.")])
    assert to_wire([Message("assistant", text), Message("user", extra)])[1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "A room."},
        {"role": "user", "content": "Note."},
    ]


def test_a_wire_answer_goes_through_and_back() -> None:
    message = {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }
    assert to_wire([Message("assistant", from_wire(message)), Message("user", "x")])[0] == message


# -- plain --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, name, arguments",
    [
        ("search highest point of Malaysia", "search", {"query": "highest point of Malaysia"}),
        ('  search "it\'s" a=1 (x)\nline two ', "search", {"query": '"it\'s" a=1 (x)\nline two'}),
        ("search (the band) history", "search", {"query": "(the band) history"}),
        ('search("x")', "search", {"query": "x"}),
        ("search(query='a \"b\" \\n \\u00e9 \\d ')", "search", {"query": 'a "b" \n é \\d '}),
        ("search", "search", {}),
        ("look", "look", {}),
        ("look()", "look", {}),
        ("add 1 2", "add", {"a": 1, "b": 2}),
        ("add a=1 b=2", "add", {"a": 1, "b": 2}),
        ("add 1 b=2", "add", {"a": 1, "b": 2}),
        ("add one '2'", "add", {"a": "one", "b": 2}),
        ("add(1, b=2)", "add", {"a": 1, "b": 2}),
        ("add( 1,\n 2, )", "add", {"a": 1, "b": 2}),
        ("add(1, c=2)", "add", {"a": 1, "c": 2}),
        ("find highest point", "find", {"query": "highest point"}),
        ("find topk=3  highest topk=5 point", "find", {"query": "highest topk=5 point", "topk": 3}),
        ("find topk=3", "find", {"topk": 3}),
        ("find query=x", "find", {"query": "query=x"}),
        ('write "a b" \'c "d"\'', "write", {"path": "a b", "text": 'c "d"'}),
        ('write "a \\" \\\\ b" text="x y"z', "write", {"path": 'a " \\ b', "text": "x yz"}),
        ('write 5 "k=v"', "write", {"path": "5", "text": "k=v"}),
        ("wait 1.5", "wait", {"seconds": 1.5}),
        ("wait(-1.5e3)", "wait", {"seconds": -1500.0}),
        ('put([1, None, true, {"k": (1, "x")}])', "put", {"value": [1, None, True, {"k": [1, "x"]}]}),
    ],
)
def test_plain_arguments(text: str, name: str, arguments: dict[str, Any]) -> None:
    assert one(plain(), text) == Call(name, arguments)


@pytest.mark.parametrize(
    "text, said",
    [
        ("fly away", "There is no tool 'fly'"),
        ("Search x", "Did you mean 'search'"),
        ("(x)", "does not begin with a tool's name"),
        ("add 1 2 3", "it has 3 arguments, but the tool takes 2: 'add(a: integer, b: integer)'"),
        ("add(1, 2, 3)", "it has 3 arguments"),
        ("add 1 a=2", "'a' is given twice"),
        ("add a=1 a=2", "'a' stands twice"),
        ("add(a=1, a=2)", "'a' stands twice"),
        ("add(a=1, 2)", "an argument without a name follows"),
        ("add 1 it's", "a quote is not closed"),
        ("add(1, 'x)", "a quote is not closed"),
        ("add(1 2)", "break at character 2 (expected ',', got '2')"),
        ("add(1, [2)", "(expected ',' or ']', the text ends)"),
        ("add(1,, 2)", "(expected a value, got ',')"),
        ("add(one, 2)", "(expected a value; text stands in quotes, got 'one')"),
        ("add(__import__('os'), 2)", "expected a value; text stands in quotes"),
        ("add(1e999, 2)", "expected a value"),
        ("add(" + "1" * 400 + ")", "too many digits"),
        ("put(" + "[" * 100 + "]" * 100 + ")", "nested too deeply"),
        ("put({'a': 1, 'a': 2})", "'a' stands twice in one object"),
        ("put({1: 2})", "expected a key in quotes"),
        ("put({'a' 2})", "expected ':'"),
        ("put('\\ud800')", "is no character"),
        ("put('\\U00110000')", "is no character"),
        ("search('x') and more", "not closed at the end"),
        ("look around", "takes no argument, but 'around' follows"),
        ("find topk=", "has no value"),
        ("find topk=1 topk=2 x", "'topk' stands twice"),
    ],
)
def test_plain_says_what_is_wrong(text: str, said: str) -> None:
    assert said in wrong(plain(), text)


def test_plain_instructions_and_replies() -> None:
    assert plain().instructions([SEARCH, ADD]) == (
        "Tools:\n- search(query: string): Do search.\n- add(a: integer, b: integer): Do add.\n"
        "Answer with one call and nothing else, for example: search query"
    )
    assert plain().replies([Reply(Call("look"), "A room."), Reply(None, "Wrong.")]) == "A room.\nWrong."


def test_plain_renders() -> None:
    assert plain().render([Call("search", {"query": "a 'b'\n"})]) == "search(query=\"a 'b'\\n\")"
    assert plain().render([Call("look")]) == "look"
    assert plain().render([Call("search", {"query": "highest point"})], tools=TOOLS) == "search highest point"
    assert plain().render([Call("search", {"query": " x"})], tools=TOOLS) == "search(query=' x')"
    assert plain().render([Call("add", {"a": 1, "b": 2})], tools=TOOLS) == "add 1 2"
    assert plain().render([Call("add", {"a": "1", "b": None})], tools=TOOLS) == "add(a='1', b=None)"
    assert plain().render([Call("write", {"path": "a b", "text": 'say "x"'})], tools=TOOLS) == 'write "a b" "say \\"x\\""'
    assert plain().render([Call("find", {"topk": 3, "query": "x"})], tools=TOOLS) == "find(topk=3, query='x')"
    with pytest.raises(ValueError, match="cannot express a thought"):
        plain().render([Call("look")], "Hm.")
    with pytest.raises(ValueError, match="cannot express 2 calls"):
        plain().render([Call("look"), Call("look")])
    for bad in (Call("a b", {}), Call("", {}), Call("look", {"a b": 1}), Call("look", {"x": float("inf")}), Call("look", {"x": (1,)})):
        with pytest.raises(ValueError, match="plain cannot express the call"):
            plain().render([bad])
