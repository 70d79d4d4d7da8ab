"""Issue texts: what kind a wrong result is, what is said of it, and that neither the fix nor the hidden tests are given away."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.swe import diffs, taskset
from agentgym.envs.swe.describe import MOST, best, describe, leaks, subject
from agentgym.envs.swe.describe_kinds import contrast, kind
from agentgym.envs.swe.examples import Example, differences
from agentgym.envs.swe.task import SweTask

V = ("value",)


def example(
    expected: tuple[str, ...], actual: tuple[str, ...], call: str = "f(1)", name: str = "pkg.f", setup: tuple[str, ...] = (), test: int = 0
) -> Example:
    return Example(name, call, setup, expected, actual, test)


KINDS = [
    ("crash", ("value", "1"), ("error", "KeyError", "'a'")),
    ("crash", ("works",), ("error", "KeyError", "'a'")),
    ("accepts", ("error", "ValueError", "no"), ("value", "1")),
    ("other_error", ("error", "ValueError", "no"), ("error", "TypeError", "no")),
    ("truth", ("true",), ("false",)),
    ("truth", ("value", "True"), ("value", "False")),
    ("none", ("value", "[1]"), ("value", "None")),
    ("none", ("value", "Thing(1)"), ("value", "None")),
    ("case", ("value", "'Ab'"), ("value", "'ab'")),
    ("space", ("value", "'a b'"), ("value", "'ab'")),
    ("text", ("value", "'ab'"), ("value", "'ac'")),
    ("number", ("value", "1"), ("value", "2.5")),
    ("type", ("value", "1"), ("value", "'1'")),
    ("type", ("object", "Parser"), ("object", "str")),
    ("missing", ("value", "[1, 2]"), ("value", "[1]")),
    ("extra", ("items", "1", "2"), ("items", "1", "2", "3")),
    ("order", ("value", "(1, 2)"), ("value", "(2, 1)")),
    ("items", ("value", "[1, 2]"), ("value", "[1, 3]")),
    ("missing", ("value", "{1, 2}"), ("value", "{1}")),
    ("keys", ("value", "{'a': 1}"), ("value", "{'b': 1}")),
    ("value", ("value", "{'a': 1}"), ("value", "{'a': 2}")),
    ("value", ("value", "Thing(1)"), ("value", "Thing(2)")),
]


@pytest.mark.parametrize(("expected", "good", "bad"), KINDS, ids=[f"{k[0]}-{i}" for i, k in enumerate(KINDS)])
def test_kinds(expected: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    found = example(good, bad)
    assert kind(found) == expected
    text = describe("pkg", [[found]], 1, "seed")
    assert text is not None and "`pkg.f`" in text.split("\n")[0]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ((*V, repr("a\nb\nc")), (*V, repr("a\nB\nc")), "line 2 is `'B'`, it should be `'b'`"),
        ((*V, repr("a\nb")), (*V, repr("a")), "it has 1 line, it should have 2"),
        ((*V, repr("x" * 40 + "y")), (*V, repr("x" * 40 + "z")), f"from letter 25 on it is {'x' * 15 + 'z'!r}, it should be {'x' * 15 + 'y'!r}"),
        ((*V, "[1, 2, 3]"), (*V, "[1, 2]"), "it has 2 items, it should have 3"),
        ((*V, "[1, 2, 3]"), (*V, "[1, 5, 3]"), "item 1 is `5`, it should be `2`"),
        ((*V, "{'a': 1}"), (*V, "{}"), "the key 'a' is missing"),
        ((*V, "{}"), (*V, "{'a': 1}"), "there is a key 'a' too many"),
        ((*V, "{'a': 1}"), (*V, "{'a': 2}"), "the value of 'a' is `2`, it should be `1`"),
        ((*V, "{'a': 1, 'b': 2}"), (*V, "{'b': 2, 'a': 1}"), "the keys are in another order"),
        ((*V, "Thing(1)"), (*V, "Thing(2)"), None),
    ],
)
def test_contrasts(good: tuple[str, ...], bad: tuple[str, ...], said: str | None) -> None:
    assert contrast(good, bad) == said


def test_a_text_has_the_call_and_both_results() -> None:
    """In each of its forms, which differ; the same seed gives the same text."""
    found = [
        example((*V, "'DeviceType'"), (*V, "'deviceType'"), "camelize('device_type')", "inflection.camelize"),
        example((*V, "'AreaA'"), ("error", "IndexError", "string index out of range"), "camelize('area_a')", "inflection.camelize", test=1),
    ]
    texts = {describe("inflection", [found], 9, str(seed)) for seed in range(60)}
    assert len(texts) > 30
    for text in texts:
        assert text is not None and len(text.split()) <= MOST
        assert "camelize('device_type')" in text and "'DeviceType'" in text and "'deviceType'" in text
        assert "camelize('area_a')" in text and "string index out of range" in text
        assert "inflection.camelize" in text.split("\n")[0]
    assert any(">>> from inflection import camelize" in (t or "") for t in texts) and any("#   " in (t or "") for t in texts)
    assert describe("inflection", [found], 9, "1") == describe("inflection", [found], 9, "1")


def test_how_much_is_affected() -> None:
    one = [example((*V, "1"), (*V, "2"))]
    few = {(describe("pkg", [one], 1, str(s)) or "").split("\n\n")[-1] for s in range(80)}
    many = {(describe("pkg", [one], 50, str(s)) or "").split("\n\n")[-1] for s in range(80)}
    assert any("special case" in t for t in few) and any("A lot of other calls" in t for t in many)
    assert not any("special case" in t for t in many) and not any("lot" in t for t in few)


def test_what_was_done_before_is_shown() -> None:
    found = [example((*V, "1"), ("error", "KeyError", "1"), "cache[1]", "pkg.LRUCache.__getitem__", ("cache = LRUCache(2)", "cache[1] = 1"))]
    for seed in range(20):
        text = describe("pkg", [found], 2, str(seed)) or ""
        assert text.index("from pkg import LRUCache") < text.index("cache = LRUCache(2)") < text.index("cache[1] = 1") < text.index("KeyError: 1")
        assert text.startswith(("`pkg.LRUCache`", "KeyError in `pkg.LRUCache`"))


def test_two_bugs_are_two_points() -> None:
    a, b = example((*V, "1"), (*V, "2"), "f(1)"), example((*V, "'a'"), (*V, "'A'"), "g('A')", "pkg.g")
    text = describe("pkg", [[a], [b]], 5, "x") or ""
    assert re.search(r"pkg", text.split("\n")[0]) and "\n\n1. " in text and "\n\n2. " in text and "f(1)" in text and "g('A')" in text
    assert describe("pkg", [[a], []], 5, "x") is None


def test_the_best_examples_come_first() -> None:
    """Short ones of public names; of one function; long results are told by where they part, others not at all."""
    short, long = example((*V, "1"), (*V, "2"), "f(1)"), example((*V, "1"), (*V, "2"), "f(1, 2, 3, key='some text')", test=1)
    private = example((*V, "1"), (*V, "2"), "_f(1)", "pkg._f", test=2)
    other = example((*V, "1"), (*V, "2"), "g(1)", "pkg.g", test=3)
    assert best([private, long, other, short])[0] == short and private not in best([private, long, short])
    assert best([long, short, other]) == [short, long]
    lines = "\n".join("x" * 30 for _ in range(9))
    assert best([example((*V, repr(lines)), (*V, repr(lines + "y")))])
    assert best([example((*V, f"Thing({'1' * 200})"), (*V, "Thing(2)"))]) == []
    assert best([example((*V, "1"), (*V, "2"), "f(" + "1, " * 200 + ")")]) == []


def test_subjects() -> None:
    assert subject(example(V, V, "cache[1]", "pkg.Cache.__getitem__")) == "pkg.Cache"
    assert subject(example(V, V, "list(take(3, 'abc'))", "")) == "take"
    assert subject(example(V, V, "copy.copy(x)", "")) == "copy.copy"


CALL = {"call": "f(1)", "name": "pkg.f", "setup": [], "clear": True}


def test_differences_between_two_runs_of_a_test() -> None:
    """The first call that gives something else, as long as the calls are the same; not what was never steady, nor what cannot be written."""
    before = [
        CALL | {"result": ["value", "1"]},
        CALL | {"call": "now()", "result": None},
        CALL | {"call": "g(<lambda>)", "clear": False, "result": ["value", "1"]},
        CALL | {"call": "f(2)", "result": ["value", "2"]},
        CALL | {"call": "f(3)", "result": ["items", ["1", "2"]]},
    ]
    after = [dict(c) for c in before]
    after[1]["result"], after[2]["result"] = ["value", "7"], ["value", "7"]
    assert differences(before, {"calls": after}, 4) == []
    after[3]["result"], after[4]["result"] = ["error", "KeyError", "2"], ["items", ["1"]]
    assert differences(before, {"calls": after}, 4) == [
        Example("pkg.f", "f(2)", (), ("value", "2"), ("error", "KeyError", "2"), 4),
        Example("pkg.f", "f(3)", (), ("items", "1", "2"), ("items", "1"), 4),
    ]
    after[0] = CALL | {"call": "f(0)", "result": ["value", "0"]}
    assert differences(before, {"calls": after}, 4) == []


def failure(**statement: object) -> dict[str, object]:
    said = {"clear": True, "setup": [], "truth": True, **statement}
    return {"type": "AssertionError", "message": "", "compared": ["==", "3", "4"], "statement": said}


def test_differences_that_only_the_assertion_shows() -> None:
    left = differences([], {"failure": failure(left="f(1) + 1", right="4", calls=["left"])}, 2)
    assert left == [Example("", "f(1) + 1", (), ("value", "4"), ("value", "3"), 2)]
    right = differences([], {"failure": failure(left="3", right="len(f(1))", calls=["right"])}, 2)
    assert right == [Example("", "len(f(1))", (), ("value", "3"), ("value", "4"), 2)]
    both = differences([], {"failure": failure(left="f(1)", right="g(1)", calls=["left", "right"])}, 2)
    assert [e.sure for e in both] == [False]
    truth = differences([], {"failure": failure(test="f(1)", truth=False, calls=["test"], setup=["x = 1"])}, 2)
    assert truth == [Example("", "f(1)", ("x = 1",), ("false",), ("true",), 2)]
    error = failure(code="f(1).x", calls=["code"]) | {"type": "KeyError", "message": "1"}
    assert differences([], {"failure": error}, 2) == [Example("", "f(1).x", (), ("works",), ("error", "KeyError", "1"), 2)]
    for nothing in (failure(left="3", right="4", calls=[]), failure(left="f(x)", right="4", calls=["left"], clear=False), {"type": "KeyError"}, None):
        assert differences([], {"failure": nothing}, 2) == []


@given(st.builds(Example, st.text(), st.text(), st.tuples(st.text()), st.tuples(st.text()), st.tuples(st.text()), st.integers(), st.booleans()))
def test_examples_come_back_from_rows(e: Example) -> None:
    assert Example.from_row(e.as_row()) == e


DIFF = diffs.unified({"pkg/core.py": "def f(x):\n    return x + 1\n"}, {"pkg/core.py": "def f(x):\n    return x - 1\n"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("it should `return x + 1`", "the line 'return x + 1'"),
        ("it has return x - 1", "the line 'return x - 1'"),
        ("see test_core.py", "the test's name 'test_core.py'"),
        ("in tests/test_core.py it", "the test's name 'tests/test_core.py'"),
        ("`TestF` fails", "the test's name 'TestF'"),
        ("test_adds fails", "the test's name 'test_adds'"),
        ("fix:\n@@ -1 +1 @@\n", "a diff"),
        ("--- a/pkg/core.py\n", "a diff"),
        ("f(1) returns 0, should return 2; tests fail", None),
        ("| --- | +++ |\n--- ---\n", None),
    ],
)
def test_leaks(text: str, said: str | None) -> None:
    assert leaks(text, DIFF, ["tests/test_core.py::TestF::test_adds[a b]"]) == said


# --- the set that ships --------------------------------------------------------------------------------------------

SHIPPED = taskset.shipped()


def test_shipped_texts_give_nothing_away() -> None:
    """No line that was changed, no test's name, no diff, no path of the machine they were made on."""
    for task in SHIPPED:
        assert leaks(task.problem, task.patch, task.fail_to_pass + task.pass_to_pass) is None, task.id
        assert not re.search(r"/(tmp|root|home|work|testbed|usr)/|0x[0-9a-f]{7}|<lambda>|…", task.problem), task.id


def _said(task: SweTask) -> str:
    return task.problem.split("\n")[0]


def test_shipped_texts_say_something() -> None:
    """A title, a call, what came and what should have come; not too long, and hardly two the same."""
    for task in SHIPPED:
        assert 8 <= len(task.problem.split()) <= MOST, task.id
        assert _said(task) and "\n\n" in task.problem, task.id
        assert re.search(r"should|xpect|Is:|What I got|Actual|missing|too many", task.problem), task.id
    assert len({task.problem for task in SHIPPED}) > 0.98 * len(SHIPPED)
    assert len({_said(task) for task in SHIPPED}) > 0.5 * len(SHIPPED)
