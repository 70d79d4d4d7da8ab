"""Contexts: history → messages. Action formats: completion → action."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym import registry
from agentgym.action import INSTRUCTION, Parsed, plain, tags
from agentgym.context import Turn, full, markov, window
from agentgym.types import Message

HISTORY = [Turn(f"saw {i}", ["a", "b"], f"<action>do {i}</action>", f"do {i}") for i in range(4)]
NOW = Turn("saw 4", ["left", "right"])


def test_full_is_the_whole_chat() -> None:
    messages = full("goal", HISTORY[:1], NOW, system="You play.")
    assert messages == [
        Message("system", "You play."),
        Message("user", "saw 0"),
        Message("assistant", "<action>do 0</action>"),
        Message("user", "saw 4"),
    ]
    asked = full("goal", [], NOW, admissible=True, instruction="Act.")
    assert asked == [Message("user", "saw 4\nAdmissible actions: left, right\nAct.")]


def test_full_only_ever_grows() -> None:
    for n in range(len(HISTORY)):
        before = full("goal", HISTORY[:n], HISTORY[n], admissible=True)
        after = full("goal", HISTORY[: n + 1], NOW, admissible=True)
        assert after[: len(before) + 1] == [*before, Message("assistant", HISTORY[n].completion)]


def test_window_shows_the_last_exchanges_and_where_it_stands() -> None:
    (message,) = window("win", HISTORY, NOW, size=2)
    assert message.role == "user"
    assert message.content == (
        "You are an expert agent acting in a text environment.\nYour task is: win\n"
        "You have taken 4 step(s) so far. The last 2 observation(s) and action(s):\n"
        "[3] observation: saw 2\n[3] action: do 2\n[4] observation: saw 3\n[4] action: do 3\n"
        "You are at step 5. Current observation: saw 4\nAdmissible actions: left, right"
    )
    (first,) = window("win", [], NOW, admissible=False, instruction="Act.")
    assert "so far" not in first.content and first.content.endswith("You are at step 1. Current observation: saw 4\nAct.")
    assert "observation: saw" not in window("win", HISTORY, NOW, size=0)[0].content.replace("Current observation: saw 4", "")
    assert window("win", HISTORY[:1], NOW, size=9)[0].content.count("[1] action") == 1


def test_markov_forgets() -> None:
    assert markov("win", HISTORY, NOW) == markov("win", [], NOW)
    assert markov("win", [], NOW, system="s") == [
        Message("system", "s"),
        Message("user", "Your task is: win\nsaw 4\nAdmissible actions: left, right"),
    ]


def test_an_environment_without_a_list_of_actions() -> None:
    for context in (full, window, markov):
        assert "Admissible" not in context("g", [], Turn("o"), admissible=True)[-1].content
        assert "Admissible" in context("g", [], Turn("o", []), admissible=True)[-1].content  # listed, and empty


def test_plain_takes_all() -> None:
    assert plain("  go left\n") == Parsed("go left", True)
    assert plain(" \n") == Parsed("", False)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("<think>hm</think><action>Go Left</action>", Parsed("go left", True)),
        ("<THINK>x</THINK> <ACTION> take key </ACTION> tail", Parsed("take key", True)),
        ("<action>go left</action>", Parsed("go left", False)),  # no thought
        ("<think>x</think><action></action>", Parsed("", False)),
        ("<think>x</think><action>a</action><action>b</action>", Parsed("a", True)),
        ("<think>x</think><action>a\nb</action>", Parsed("a\nb", True)),
        ("no tags, and a text that is longer than thirty characters", Parsed("longer than thirty characters", False)),
        ("<action>never closed", Parsed("<action>never closed", False)),
    ],
)
def test_tags(text: str, expected: Parsed) -> None:
    assert tags(text) == expected


def test_tags_without_thought_or_lowering() -> None:
    assert tags("<action>Go Left</action>", think=False, lower=False) == Parsed("Go Left", True)


@given(st.text())
def test_no_completion_breaks_a_format(text: str) -> None:
    for name in registry.names("action"):
        parsed = registry.find("action", name)(text)
        assert isinstance(parsed, Parsed) and isinstance(parsed.action, str)
        assert parsed.action or not parsed.valid


def test_every_format_says_what_it_asks_for() -> None:
    assert set(INSTRUCTION) == set(registry.names("action"))
