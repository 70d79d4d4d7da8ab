"""@agentgym.tool: schemas, checked arguments, time-outs, limits, failures."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import agentgym
from agentgym.errors import ConfigError, EnvError
from agentgym.toolcall import CallError
from agentgym.tools import Tool, ToolResult, as_text, clip


class Place(BaseModel):
    """A place."""

    x: int
    y: int = 0


@agentgym.tool
def find(
    query: str, topk: int = 3, kind: Literal["web", "wiki"] = "wiki", near: Annotated[Place | None, Field(description="where")] = None
) -> list[str]:
    """Find documents.

    They come best first.

    Args:
        query: what to look for
        topk: how many
    """
    return [query] * topk


def test_the_schema_comes_from_the_signature_and_the_docstring() -> None:
    spec = find.spec
    assert spec.name == "find" and spec.description == "Find documents.\n\nThey come best first." and not spec.final
    properties = spec.parameters["properties"]
    assert properties["query"] == {"type": "string", "description": "what to look for"}
    assert properties["topk"] == {"type": "integer", "default": 3, "description": "how many"}
    assert properties["kind"] == {"enum": ["web", "wiki"], "type": "string", "default": "wiki"}
    assert properties["near"]["description"] == "where" and "Place" in spec.parameters["$defs"]
    assert spec.parameters["required"] == ["query"] and spec.parameters["type"] == "object"
    assert spec.signature == "find(query: string, topk: integer = 3, kind: string = 'wiki', near: any or null = None)"


def test_arguments_are_checked_and_the_model_is_told() -> None:
    assert find.run({"query": "a", "topk": "2"}).content == '["a","a"]'
    for arguments, said in [
        ({}, "find: the argument 'query' is missing. Call it as find(query: string"),
        ({"query": "a", "top": 1}, "find: there is no argument 'top'."),
        ({"query": "a", "topk": "many"}, "argument 'topk': input should be a valid integer, unable to parse string as an integer, got 'many'."),
        ({"query": "a", "kind": "tv"}, "argument 'kind': input should be 'web' or 'wiki', got 'tv'."),
        ({"query": "a", "near": {"x": "far"}}, "argument 'near.x'"),
    ]:
        with pytest.raises(CallError) as told:
            find.run(arguments)
        assert said in str(told.value)


def test_arguments_arrive_in_their_types() -> None:
    @agentgym.tool
    def where(at: Place) -> str:
        """Say where."""
        assert isinstance(at, Place)
        return f"{at.x},{at.y}"

    assert where.run({"at": {"x": 1}}).content == "1,0"


def test_a_signature_that_a_model_cannot_call_is_refused() -> None:
    def untyped(a) -> None: ...  # type: ignore[no-untyped-def]
    def starred(*a: int) -> None: ...
    def keywords(**a: int) -> None: ...

    for fn, what in [(untyped, "`a`"), (starred, r"\*a"), (keywords, r"\*\*a")]:
        with pytest.raises(ConfigError, match=what):
            _ = Tool(fn).spec
    with pytest.raises(ConfigError, match="letters, digits"):
        Tool(lambda: None)
    with pytest.raises(ConfigError, match="timeout=0"):
        Tool(untyped, timeout=0)
    with pytest.raises(ConfigError, match="a tool is a function, got 3"):
        Tool(3)  # type: ignore[arg-type]


class Box:
    """Holds a state that its tools share."""

    def __init__(self) -> None:
        self.inside: list[str] = []

    @agentgym.tool
    def put(self, thing: str) -> int:
        """Put it in."""
        self.inside.append(thing)
        return len(self.inside)

    @agentgym.tool(name="look", timeout=None)
    async def look_inside(self) -> str:
        """Look."""
        await asyncio.sleep(0)
        return ", ".join(self.inside)


def test_methods_share_their_object_and_two_objects_share_nothing() -> None:
    one, two = Box(), Box()
    assert one.put.run({"thing": "a"}).content == "1" and one.put("b") == 2
    assert one.look_inside.run({}).content == "a, b" and two.look_inside.run({}).content == ""
    assert one.put.spec is two.put.spec and one.put.spec.arguments == ["thing"] and Box.look_inside.spec.name == "look"


def test_a_tool_that_hangs_is_cut_off_sync_and_async() -> None:
    @agentgym.tool(timeout=0.05)
    def stuck() -> None:
        """Hang."""
        time.sleep(2)

    cancelled = []

    @agentgym.tool(timeout=0.05)
    async def dozing() -> None:
        """Sleep."""
        try:
            await asyncio.sleep(2)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    for t in (stuck, dozing):
        started = time.perf_counter()
        result = t.run({})
        assert result.error and result.content == f"{t.name} gave no answer within 0.05 s; the call was cut off."
        assert time.perf_counter() - started < 1.5
    for _ in range(100):
        if cancelled:
            break
        time.sleep(0.01)
    assert cancelled


def test_what_a_tool_raises_is_its_reply_and_only_infrastructure_ends_the_episode() -> None:
    def fails(how: str) -> str:
        """Fail."""
        raise {"value": ValueError("no"), "exit": SystemExit(3), "call": CallError("say it another way"), "env": EnvError("server gone"),
               "conn": ConnectionError("refused"), "time": TimeoutError("mine")}[how]  # fmt: skip

    for timeout in (None, 5.0):
        t = Tool(fails, timeout=timeout, fatal=(ConnectionError,))
        assert t.run({"how": "value"}) == ToolResult("fails failed: ValueError: no", error=True)
        assert t.run({"how": "exit"}) == ToolResult("fails failed: SystemExit: 3", error=True)
        assert t.run({"how": "time"}) == ToolResult("fails failed: TimeoutError: mine", error=True)
        with pytest.raises(CallError, match="another way"):
            t.run({"how": "call"})
        with pytest.raises(EnvError, match="server gone"):
            t.run({"how": "env"})
        with pytest.raises(EnvError, match="tool 'fails': the infrastructure failed: ConnectionError: refused"):
            t.run({"how": "conn"})


def test_a_result_becomes_text() -> None:
    assert [as_text(x) for x in ("a", None, 3, 2.5, True, [1, "é"], {"a": Place(x=1)}, float("nan"))] == [
        "a", "OK", "3", "2.5", "true", '[1,"é"]', '{"a":{"x":1,"y":0}}', "NaN",
    ]  # fmt: skip
    assert as_text(object()).startswith('"<object')

    @agentgym.tool(limit=30)
    def long() -> ToolResult:
        """Write much."""
        return ToolResult("x" * 60 + "y" * 40, reward=0.5)

    cut = long.run({})
    assert cut.reward == 0.5 and cut.content == "x" * 20 + "\n[… 70 characters cut …]\n" + "y" * 10


@given(st.text(max_size=300), st.integers(1, 100))
def test_a_cut_says_how_much_is_gone(text: str, limit: int) -> None:
    cut = clip(text, limit)
    if len(text) <= limit:
        assert cut == text
    else:
        head, mark, tail = cut.partition(f"\n[… {len(text) - limit:,} characters cut …]\n")
        assert mark and len(head) + len(tail) == limit and text.startswith(head) and text.endswith(tail)
