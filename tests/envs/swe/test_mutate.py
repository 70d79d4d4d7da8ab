"""Bug injection: what each operator makes of a source, worked by hand; what is never touched; every site gives Python that differs a little."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.swe import mutate
from agentgym.envs.swe.mutate import Site, apply, operators, sites
from agentgym.errors import DataError


def variants(operator: str, source: str) -> list[str]:
    """Return what an operator makes of a source, at each of its sites, in order."""
    source = textwrap.dedent(source)
    return [apply(source, site) for site in sites(source) if site.operator == operator]


def in_function(*lines: str) -> str:
    return "def f(a, b, c):\n" + "".join(f"    {line}\n" for line in lines)


LINES = [  # a line of a function f(a, b, c) → what the operator makes of it
    ("compare_boundary", "return a < b", ["return a <= b"]),
    ("compare_boundary", "return a <= b < c", ["return a < b < c", "return a <= b <= c"]),
    ("compare_boundary", "return a == b", []),
    ("compare_negate", "return a == b", ["return a != b"]),
    ("compare_negate", "return a not in b", ["return a in b"]),
    ("compare_negate", "return a is None  # why", ["return a is not None  # why"]),
    ("compare_negate", "return a > b", ["return a < b"]),
    ("arithmetic", "return a + b", ["return a - b"]),
    ("arithmetic", "a += 1", ["a -= 1"]),
    ("arithmetic", "return a%b", ["return a//b"]),
    ("arithmetic", "return 'x' + a", []),
    ("arithmetic", "return '%s' % a", []),
    ("forget_total", "a += b", ["a = b"]),
    ("swap_operands", "return a - b", ["return b - a"]),
    ("swap_operands", "return a + a", []),
    ("swap_operands", "return '%d' % a", []),
    ("break_chain", "return a + b + c", ["return a + b", "return c", "return a + c", "return b + c"]),
    ("break_chain", "return (a or b) - 1", ["return (a or b)"]),
    ("and_or", "return a and b", ["return a or b"]),
    ("drop_condition", "return a and b", ["return a", "return b"]),
    ("drop_condition", "return (a or b == c) and c", ["return (a or b == c)", "return c", "return a and c", "return (b == c) and c"]),
    ("drop_not", "return not a", ["return a"]),
    ("drop_not", "return b[-1]", ["return b[1]"]),
    ("off_by_one", "return a[2]", ["return a[3]", "return a[1]"]),
    ("off_by_one", "return a[0]", ["return a[1]"]),
    ("off_by_one", "return list(range(a))", ["return list(range(a - 1))"]),
    ("off_by_one", "return a[b:c]", ["return a[b + 1:c]", "return a[b:c - 1]"]),
    ("slice_bound", "return a[1:b]", ["return a[:b]", "return a[1:]"]),
    ("slice_bound", "return a[::-1]", ["return a[::]"]),
    ("change_constant", "return True", ["return False"]),
    ("change_constant", "return a.split('-')", ["return a.split('_')"]),
    ("change_constant", "return a or 'name'", ["return a or 'nam'"]),
    ("change_constant", "return ''.join(a)", ["return ' '.join(a)"]),
    ("change_constant", "return 0.5", ["return 1.0"]),
    ("change_constant", "return '%s at %d' % a", []),
    ("change_pattern", "return r'^a+$'", ["return r'a+$'", "return r'^a+'", "return r'^a*$'"]),
    ("change_pattern", r"return r'\d[^x]'", [r"return r'\w[^x]'", r"return r'\d[x]'"]),
    ("invert_if", "return a if b else c", ["return c if b else a"]),
    ("drop_element", "return [a, b, c]", ["return [b, c]", "return [a, c]", "return [a, b, ]"]),
    ("drop_element", "return [a, b]", []),
    ("swap_pair", "return a, b", ["return b, a"]),
    ("wrong_variable", "return b", ["return a", "return c"]),
    ("wrong_variable", "return b.a(c=a)", ["return a.a(c=a)", "return c.a(c=a)", "return b.a(c=b)"]),
    ("wrong_variable", "b = 1", []),
    ("wrong_variable", "for b in a: pass", ["for b in b: pass"]),
    ("wrong_function", "return a.lstrip()", ["return a.rstrip()"]),
    ("wrong_function", "return max(a)", ["return min(a)"]),
    ("wrong_function", "return a.items()", ["return a.keys()"]),
    ("unwrap_call", "return sorted(a)", ["return a"]),
    ("unwrap_call", "return str(a + b)[0]", ["return (a + b)[0]"]),
    ("unwrap_call", "return sorted(x for x in a)", []),
    ("drop_call", "return a.strip().lower()", ["return a.strip()", "return a.lower()"]),
    ("swap_arguments", "return f(a, b)", ["return f(b, a)"]),
    ("swap_arguments", "return f(a, b, c)", ["return f(b, a, c)", "return f(a, c, b)"]),
    ("swap_arguments", "return isinstance(a, b)", []),
    ("drop_argument", "return f(a, key=b)", ["return f(a)"]),
    ("drop_argument", "return a.get(b, 0)", ["return a.get(b)"]),
    ("drop_argument", "return f(a, b)", []),
    ("wrong_error", "raise ValueError('a is wrong')", ["raise TypeError('a is wrong')"]),
    ("wrong_error", "raise StopIteration", ["raise IndexError"]),
    ("wrong_error", "raise Own('x')", []),
    ("swap_key_value", "a[b] = c", ["a[c] = b"]),
]


@pytest.mark.parametrize(("operator", "line", "expected"), LINES, ids=[f"{o}-{i}" for i, (o, *_) in enumerate(LINES)])
def test_lines(operator: str, line: str, expected: list[str]) -> None:
    assert variants(operator, in_function(line)) == [in_function(e) for e in expected]


BLOCKS = [  # a source → what the operator makes of it
    ("wrong_default", "def f(a, b=True, c=3, d='-', e=None): pass", ["b=False", "c=4", "d='_'"]),
    ("invert_if", in_function("if a:", "    return b", "return c"), ["if not a:"]),
    ("drop_jump", in_function("for x in a:", "    if b:", "        continue", "    c(x)"), ["        pass\n", "        break\n"]),
]


@pytest.mark.parametrize(("operator", "source", "expected"), BLOCKS, ids=[b[0] for b in BLOCKS])
def test_one_place_changes(operator: str, source: str, expected: list[str]) -> None:
    found = variants(operator, source)
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert part in text and part not in source


WHOLE = [
    (
        "wrong_attribute",
        """
        class C:
            def f(self):
                self.x = self.low
                return self.high
        """,
        ["self.x = self.high\n        return self.high", "self.x = self.low\n        return self.x"],
    ),
    (
        "drop_assignment",
        """
        def f(a):
            b = 1
            a = a + b
            a.x = b
            return a
        """,
        ["    b = 1\n    a.x = b\n", "    a = a + b\n    return a\n"],
    ),
    (
        "drop_call_statement",
        """
        def f(a):
            "What it does."
            a.append(1)
            return a
        """,
        ['    "What it does."\n    return a\n'],
    ),
    (
        "drop_return",
        """
        def f(a):
            return g(a)
        def h(a):
            a = 1
            return a
        """,
        ["    g(a)\ndef h", "    a = 1\n"],
    ),
    (
        "early_return",
        """
        def f(a):
            for x in a:
                g(x)
            return a
        """,
        ["        g(x)\n        return a\n"],
    ),
    (
        "shuffle_lines",
        """
        def f(a):
            a = a.strip()
            # shorter
            a = a[1:]
            b = 2
            return a
        """,
        ["    a = a[1:]\n    # shorter\n    a = a.strip()\n    b = 2\n"],
    ),
    (
        "drop_guard",
        """
        def f(a):
            if not a:
                return None
            return a[0]
        """,
        ["def f(a):\n    return a[0]\n"],
    ),
    (
        "drop_test",
        """
        def f(a):
            # only once
            if a.new:
                a.start()
            return a
        """,
        ["def f(a):\n    # only once\n    a.start()\n    return a\n"],
    ),
    (
        "drop_branch",
        """
        def f(a):
            if a > 1:
                return 1
            elif a:
                return 2
            else:
                return 3
        """,
        ["        return 1\n    else:\n        return 3\n", "        return 2\n"],
    ),
    (
        "swap_branches",
        """
        def f(a):
            if a:
                b = 1
            else:
                b = 2
            return b
        """,
        ["    if a:\n        b = 2\n    else:\n        b = 1\n"],
    ),
    (
        "drop_try",
        """
        def f(a):
            try:
                return a[0]
            except IndexError:
                return None
        """,
        ["def f(a):\n    return a[0]\n"],
    ),
    (
        "wrong_error",
        """
        def f(a):
            try:
                return a[0]
            except (IndexError, OwnError):
                return None
        """,
        ["except IndexError:", "except OwnError:"],
    ),
    ("drop_base", "class A(B, C):\n    x = 1\nclass D(E):\n    x = 1\nclass F(object):\n    x = 1\n", ["class A(B):", "class D:"]),
    (
        "drop_method",
        """
        class A:
            x = 1
            def f(self):
                return 1
            def g(self):
                return 2
        """,
        ["    x = 1\n    def g(self):", "        return 1\n"],
    ),
    (
        "drop_decorator",
        """
        class A:
            @property
            def f(self):
                return 1
        """,
        ["class A:\n    def f(self):"],
    ),
]


@pytest.mark.parametrize(("operator", "source", "expected"), WHOLE, ids=[f"{w[0]}-{i}" for i, w in enumerate(WHOLE)])
def test_blocks(operator: str, source: str, expected: list[str]) -> None:
    found = variants(operator, source)
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert part in text
        assert text.count("\n") <= textwrap.dedent(source).count("\n")


def test_every_operator_is_worked_by_hand() -> None:
    worked = {case[0] for case in [*LINES, *BLOCKS, *WHOLE]}
    assert worked == set(operators()) and len(worked) >= 12


UNTOUCHED = '''
"""Doc: 1 < 2 and 3."""
from __future__ import annotations
import os as system
__version__ = "1.2.3"
__all__ = ["a", "b", "c"]
if TYPE_CHECKING:
    from x import y as z
if __name__ == "__main__":
    main(1, 2)

@overload
def f(a: int = 1) -> int:
    return a + 1

def g(a: Literal["one"]) -> Literal["two"]:
    """Doc: `a` < 1."""
    assert a == 1, "one"
    logger.debug("got %s", a + 1)
    warnings.warn("old" + a)
    print(a, 1)
    return f"{a + 1}"
'''


def test_what_is_never_touched() -> None:
    """No documentation, version, annotation, assertion, log message, block for type checkers or for the command line."""
    assert [(s.operator, s.before) for s in sites(UNTOUCHED)] == [("drop_return", 'return f"{a + 1}"')]


def test_messages_of_errors_stay() -> None:
    source = "def f(a):\n    raise ValueError('not one: ' + a)\n"
    assert {s.operator for s in sites(source)} == {"wrong_error"}


def test_sites_are_sorted_and_apply_wants_its_own() -> None:
    source = in_function("if a < b:", "    return a + 1", "return c")
    found = sites(source)
    assert found == sorted(found) and found == sites(source)
    assert {s.scope for s in found if s.line > 1} == {"f"}
    other = Site(2, 2, "compare_boundary", found[0].node, 99, "f", "a < b")
    with pytest.raises(DataError, match="has no site compare_boundary at line 2"):
        apply(source, other)
    with pytest.raises(DataError, match="has no site"):
        apply(source.replace("a < b", "a > b"), next(s for s in found if s.operator == "compare_boundary"))
    with pytest.raises(DataError, match="no Python"):
        sites("def f(:")


def test_a_large_change_is_refused() -> None:
    body = "".join(f"        a.append({i})\n" for i in range(mutate.LONGEST))
    source = f"class A(B):\n    def f(self, a):\n        if a:\n            pass\n{body}"
    found = sites(source)
    assert all(s.end - s.line <= mutate.LONGEST for s in found if s.operator == "drop_method")
    long = "def f(a):\n    return g(a, [\n" + "        1,\n" * 9 + "    ], b)\n"
    swap = next(s for s in sites(long) if s.operator == "swap_arguments" and "[" in s.before)
    with pytest.raises(DataError, match=r"changes \d+ lines; allowed: 1 to 12"):
        apply(long, swap)


def test_an_operand_keeps_its_brackets() -> None:
    source = "def f(a):\n    return a + sorted(not a)\n"
    (site,) = (s for s in sites(source) if s.operator == "unwrap_call")
    assert apply(source, site) == "def f(a):\n    return a + (not a)\n"


NAMES = st.sampled_from(["a", "b", "c", "self.x", "a.y", "b[0]", "1", "'-'", "True", "None", "f(a, b)"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+ - * / % < <= == != and or in is".split()), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"sorted(not {e})"),
        st.tuples(inner, inner).map(lambda t: f"g({t[0]}, {t[1]}, key={t[0]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"[{', '.join(t)}]"),
        inner.map(lambda e: f"sorted({e})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    ),
    max_leaves=6,
)
STATEMENTS = st.one_of(
    EXPRESSIONS.map(lambda e: f"return {e}"),
    EXPRESSIONS.map(lambda e: f"b = {e}  # note"),
    EXPRESSIONS.map(lambda e: f"a += {e}"),
    EXPRESSIONS.map(lambda e: f"a.append({e})"),
    st.tuples(EXPRESSIONS, EXPRESSIONS).map(lambda t: f"if {t[0]}:\n    c = {t[1]}\nelse:\n    c = 1"),
    EXPRESSIONS.map(lambda e: f"for x in {e}:\n    if x:\n        continue\n    b = x"),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STATEMENTS, min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_every_site_gives_python_that_differs_a_little(statements: list[str]) -> None:
    """Each change compiles, keeps all comments but those of lines that it removes, and is of few lines."""
    source = "class A:\n    def f(self, a, b, c):\n" + textwrap.indent("\n".join(statements) + "\n", " " * 8)
    for site in sites(source):
        broken = apply(source, site)
        compile(broken, "<test>", "exec")
        assert broken != source
        removed = source.count("\n") - broken.count("\n")
        assert -6 <= removed <= mutate.LONGEST
        if removed == 0 and site.operator not in ("shuffle_lines", "drop_assignment", "drop_call_statement"):
            assert broken.count("# note") == source.count("# note")
