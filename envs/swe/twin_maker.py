"""Makes the twins of hidden tests; see twins.py."""

from __future__ import annotations

import ast
import copy
import functools
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .twins import doom, split_id

Function = ast.FunctionDef | ast.AsyncFunctionDef
Names = tuple[str, ...]  # classes and function
_EQUALS = frozenset(
    "assertEqual assertEquals assertListEqual assertTupleEqual assertDictEqual assertSetEqual assertSequenceEqual assertMultiLineEqual "
    "assertCountEqual".split()
)
# P stands for a prefix of chance. An object counts as the tested code's own where its __eq__ is no built-in one and comes neither from a test file
# nor from an installed package whose name for it the test file uses, as with mock.ANY.
_HELPERS = """
P_lax = []
def P_other(v, near, deep=0):
    kind = type(v)
    if kind is bool:
        return not v
    if kind in (int, float, complex):
        return v + P_number if near and v == v else kind(P_number)
    if kind in (str, bytes):
        return (v if near else kind()) + (P_word if kind is str else P_word.encode())
    if kind in (list, tuple, set, frozenset) and 0 < len(v) < 1000 and deep < 4:
        return kind([P_other(x, near, deep + 1) for x in v])
    if kind is dict and 0 < len(v) < 1000 and deep < 4:
        return {k: P_other(x, near, deep + 1) for k, x in v.items()}
    return object()
def P_equals(a, b):
    return P_foreign(a) and bool(a == P_other(b, True)) and bool(a == P_other(b, False))
def P_foreign(v):
    todo, left = [v], 2000
    while todo and left:
        left -= 1
        x = todo.pop()
        kind = type(x)
        if kind in (list, tuple, set, frozenset):
            todo.extend(list(x)[:left])
            continue
        if kind is dict:
            todo.extend(list(x.values())[:left])
            continue
        equal = getattr(kind, "__eq__", None)
        if type(equal) is type(int.__eq__):
            continue
        file = getattr(getattr(equal, "__code__", None), "co_filename", "?")
        parts = file.split("/")
        if file == __file__ or parts[-1] in P_tests or "test" in parts[:-1] or "tests" in parts[:-1]:
            continue
        if file[:1] == "/" and not file.startswith(P_root) and kind.__name__.lstrip("_") in P_names:
            continue
        return True
    return False
def P_look(a, b):
    try:
        if P_equals(a, b) or P_equals(b, a):
            P_lax.append(1)
    except Exception:
        pass
    return a, b
def P_same(a, b):
    P_look(a, b)
    return a == b
def P_fail():
    DOOM
def P_end():
    if not P_lax:
        P_fail()
"""


@dataclass(frozen=True)
class Twin:
    """The source of a test file with twins. must_fail: node ids, those of the tests themselves and those of copies with another literal."""

    text: str
    must_fail: tuple[str, ...]


def twin(source: str, nodes: Sequence[str], rng: random.Random, root: str, test_files: Iterable[str] = ()) -> Twin | None:
    """Return the twins of some tests of a file; None where its source cannot be read, or none of the tests is written out in it.

    nodes       their node ids
    root        where the work tree is
    test_files  names of files that may hold classes of the tests
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    prefix = "_" + "".join(rng.choices("abcdefghiklmnoprstuw", k=6))
    names = {node: split_id(node)[1] for node in nodes}
    found = _find(tree, set(names.values()))
    maker = _Maker(prefix, set(found.values()), rng)
    tree = maker.visit(tree)
    must_fail = [node for node in nodes if names[node] in found]
    if not must_fail:
        return None
    must_fail += [_renamed(node, maker.copies[found[names[node]]]) for node in nodes if found.get(names[node]) in maker.copies]
    words = sorted(set(re.findall(r"[A-Za-z]\w*", source)))
    head = f"{prefix}_number = {rng.randint(1000, 9999)}\n{prefix}_word = {'~' + prefix!r}\n{prefix}_names = {words!r}\n"
    head += f"{prefix}_tests = {sorted({'conftest.py', *test_files})!r}\n{prefix}_root = {root.rstrip('/') + '/'!r}\n"
    helpers = _HELPERS.replace("DOOM", doom(rng)).replace("P_", f"{prefix}_")
    at = _first_line(tree)
    tree.body[at:at] = ast.parse(head + helpers).body
    return Twin(ast.unparse(ast.fix_missing_locations(tree)) + "\n", tuple(must_fail))


def _renamed(node: str, name: str) -> str:
    head, bracket, parameters = node.partition("[")
    return f"{head.rpartition('::')[0]}::{name}{bracket}{parameters}"


def _find(tree: ast.Module, wanted: set[Names]) -> dict[Names, Names]:
    """Return where each of the tests is written: a method that is inherited stands in another class."""
    there: set[Names] = set()

    def look(body: Iterable[ast.stmt], path: Names) -> None:
        for node in body:
            if isinstance(node, Function | ast.ClassDef):
                there.add((*path, node.name))
            if isinstance(node, ast.ClassDef):
                look(node.body, (*path, node.name))

    look(tree.body, ())
    out = {}
    for names in wanted:
        places = [names] if names in there else sorted(t for t in there if t[-1:] == names[-1:] and len(t) > 1)
        if places:
            out[names] = places[0]
    return out


def _first_line(tree: ast.Module) -> int:
    """Return where the first statement after docstring and __future__ imports is."""
    at = 0
    for node in tree.body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if not (text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        at += 1
    return at


class _Maker(ast.NodeTransformer):
    """Makes tests fail at each of their ends, adds copies with other literals, and looks at what is compared.

    copies  test → name of its copy, which stands beside it
    """

    def __init__(self, prefix: str, wanted: set[Names], rng: random.Random) -> None:
        self.prefix, self.wanted, self.rng = prefix, wanted, rng
        self.copies: dict[Names, str] = {}
        self._path: Names = ()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        before, self._path = self._path, (*self._path, node.name)
        self.generic_visit(node)
        self._path = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | list[ast.AST]:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST | list[ast.AST]:
        return self._function(node)

    def _function(self, node: Function) -> ast.AST | list[ast.AST]:
        names = (*self._path, node.name)
        other = self._copy(node, names) if names in self.wanted else None
        before, self._path = self._path, names
        self.generic_visit(node)
        self._path = before
        if names in self.wanted:
            end = functools.partial(_call, f"{self.prefix}_end")
            node.body = [_Returns(end).visit(s) for s in node.body] + [end()]
        return [node, other] if other else node

    def _copy(self, node: Function, names: Names) -> Function | None:
        """Return a copy of a test that expects something else, None where it says nowhere in a literal what it expects."""
        out = copy.deepcopy(node)
        out.name = f"{node.name}_{''.join(self.rng.choices('abcdefghiklmnoprstuw', k=5))}"
        changer = _Literals(f"{self.prefix}_n", self.rng)
        out.body = changer.block(out.body)
        if not changer.changed:
            return None
        unseen = ast.parse(f"if not {self.prefix}_n:\n    {self.prefix}_fail()").body[0]
        out.body = [ast.parse(f"{self.prefix}_n = 0").body[0], *(_Returns(lambda: copy.deepcopy(unseen)).visit(s) for s in out.body), unseen]
        self.copies[names] = out.name
        return out

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = _Comparisons(self.prefix).visit(node.test)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _says_equal(node):
            pair = ast.Call(ast.Name(f"{self.prefix}_look", ast.Load()), node.args[:2], [])
            node.args[:2] = [ast.Starred(pair, ast.Load())]
        return node


def _says_equal(node: ast.AST) -> bool:
    """Return whether a node is a call such as self.assertEqual(a, b)."""
    method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EQUALS
    return method and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args[:2])  # type: ignore[attr-defined]


def _call(name: str) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))


class _Comparisons(ast.NodeTransformer):
    """Has each == in an assertion go through a helper."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            return ast.Call(ast.Name(f"{self.prefix}_same", ast.Load()), [node.left, node.comparators[0]], [])
        return node


class _Returns(ast.NodeTransformer):
    """Puts a statement before each `return` of one function."""

    def __init__(self, make: Callable[[], ast.stmt]) -> None:
        self._make = make

    def _apart(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _apart

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        return [self._make(), node]


class _Literals:
    """Changes the literals that assertions compare with, where a false assertion fails the test: not below `with` or `try`."""

    def __init__(self, mark: str, rng: random.Random) -> None:
        self._mark, self._rng = mark, rng
        self.changed = False

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements with other literals; before each that was changed stands one that notes that it is reached."""
        out: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.If | ast.For | ast.While | ast.AsyncFor):
                node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            elif self._change(node):
                self.changed = True
                out.append(ast.parse(f"{self._mark} = 1").body[0])
            out.append(node)
        return out

    def _change(self, node: ast.stmt) -> bool:
        """Change what an assertion expects; return whether it did."""
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.Eq):
            sides = [node.test.left, node.test.comparators[0]]
            at = self._side(sides)
            if at is not None:
                new = self._other(sides[at])
                if at:
                    node.test.comparators = [new]
                else:
                    node.test.left = new
                return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _says_equal(node.value):
            at = self._side(node.value.args[:2])
            if at is not None:
                node.value.args[at] = self._other(node.value.args[at])
                return True
        return False

    def _side(self, sides: Sequence[ast.expr]) -> int | None:
        """Return which of the two sides is a literal; None where none or both are."""
        plain = [_is_literal(s) for s in sides]
        return plain.index(True) if sum(plain) == 1 else None

    def _other(self, node: ast.expr) -> ast.expr:
        """Return a literal that looks alike and is another."""
        rng = self._rng
        if isinstance(node, ast.Constant):
            value, more = node.value, rng.choice("abcdefghiklmnoprstuw") + str(rng.randint(2, 9))
            if isinstance(value, str):
                return ast.Constant(value + more)
            if isinstance(value, bytes):
                return ast.Constant(value + more.encode())
            assert isinstance(value, int | float)
            return ast.Constant(value + rng.randint(11, 99))
        if isinstance(node, ast.UnaryOp):
            return ast.UnaryOp(node.op, self._other(node.operand))
        if isinstance(node, ast.Dict):
            at = next((i for i, v in enumerate(node.values) if _is_literal(v)), None)
            if at is None:
                return ast.Dict([*node.keys, ast.Constant(rng.randint(11, 99))], [*node.values, ast.Constant(rng.randint(11, 99))])
            return ast.Dict(node.keys, [*node.values[:at], self._other(node.values[at]), *node.values[at + 1 :]])
        assert isinstance(node, ast.List | ast.Tuple)
        at = next((i for i, v in enumerate(node.elts) if _is_literal(v)), None)
        new = [*node.elts, ast.Constant(rng.randint(11, 99))] if at is None else [*node.elts[:at], self._other(node.elts[at]), *node.elts[at + 1 :]]
        return type(node)(new, ast.Load())


def _is_literal(node: ast.expr) -> bool:
    """Return whether a node is a text, a number, or a list, tuple or dict of what is constant."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes | int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_literal(node.operand)
    if isinstance(node, ast.Dict):
        return all(k is not None and _is_fixed(k) for k in node.keys) and all(map(_is_fixed, node.values))
    return isinstance(node, ast.List | ast.Tuple) and all(map(_is_fixed, node.elts))


def _is_fixed(node: ast.expr) -> bool:
    return _is_literal(node) or (isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)))
