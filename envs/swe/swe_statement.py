"""The assertion at which a test failed, as Python text with the values of its variables. Copied next to the tree under test."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from typing import Any

_BUILTIN = frozenset(__builtins__ if isinstance(__builtins__, dict) else vars(__builtins__))
_EQUAL = ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertMultiLineEqual", "assertSequenceEqual")
_ROOM = 90


def statement(frame: types.FrameType, line: int, objects: Any) -> dict[str, Any] | None:
    """Return {"left", "right"} of a comparison for equality, {"test", "truth"} of another assertion, or {"code"} of a statement that asserts nothing.

    Beside them: "setup", the lines that make the objects in it; "clear", every name is written out; "calls", which of its parts call the package.
    None for a statement that cannot be read.
    """
    node, parts, truth = _at(frame.f_code.co_filename, line), dict[str, ast.expr](), True
    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            parts = {"left": left, "right": right}
        case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=test)):
            parts, truth = {"test": test}, False
        case ast.Assert(test=test):
            parts = {"test": test}
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_])) if name in _EQUAL:
            parts = {"left": left, "right": right}
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="assertTrue" | "assertFalse" as name), args=[test, *_])):
            parts, truth = {"test": test}, name == "assertTrue"
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.Return(value=ast.expr() as value):
            parts = {"code": value}
    if not parts:
        return None
    objects.needs = set()
    fill = _Fill(frame, objects)
    out: dict[str, Any] = {key: fill.text(part) for key, part in parts.items()}
    setup, short = objects.setup(objects.needs)
    return {**out, "truth": truth, "setup": setup, "clear": fill.clear and short, "calls": [k for k, part in parts.items() if fill.calls(part)]}


def function(value: types.FunctionType) -> str | None:
    """Return a function of one expression as a lambda, or None for another, and for one that reads more than its parameters and builtins."""
    code, tree = value.__code__, _tree(value.__code__.co_filename)
    if code.co_freevars or tree is None or value.__defaults__ or value.__kwdefaults__:
        return None
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda | ast.FunctionDef) and _first_line(n) == code.co_firstlineno]
    if len(found) != 1:
        return None
    node = found[0]
    if isinstance(node, ast.FunctionDef):
        body = (
            node.body[1:]
            if len(node.body) == 2 and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            else node.body
        )
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None or node.decorator_list:
            return None
        node.args.args = [ast.arg(a.arg) for a in node.args.args]
        node = ast.Lambda(node.args, body[0].value)
    own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)} | {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if any(isinstance(n, ast.Name) and n.id not in own | _BUILTIN for n in ast.walk(node.body)):
        return None
    return ast.unparse(node)


def _first_line(node: ast.Lambda | ast.FunctionDef) -> int:
    return node.decorator_list[0].lineno if isinstance(node, ast.FunctionDef) and node.decorator_list else node.lineno


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _at(file: str, line: int) -> ast.stmt | None:
    """Return the innermost statement at a line."""
    tree, found = _tree(file), None
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node if found is None or node.lineno >= found.lineno else found
    return found


class _Fill(ast.NodeTransformer):
    """Puts values in the place of local names."""

    def __init__(self, frame: types.FrameType, objects: Any) -> None:
        self.frame, self.objects, self.clear, self.bound = frame, objects, True, set[str]()

    def text(self, node: ast.expr) -> str:
        self.bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.bound |= {a.arg for n in ast.walk(node) if isinstance(n, ast.Lambda) for a in n.args.args}
        new = self.visit(ast.parse(ast.unparse(node), mode="eval").body)
        return ast.unparse(new)

    def calls(self, node: ast.expr) -> bool:
        """Return whether a part of a statement calls the package: one of its functions, or one of its objects."""
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            if any(isinstance(a, ast.Name) and self._own(a.id) for a in call.args):  # len(cache)
                return True
            root = call.func
            while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and self._own(root.id):
                return True
        return False

    def _own(self, name: str) -> bool:
        thing = self.frame.f_locals.get(name, self.frame.f_globals.get(name))
        module = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
        return bool(self.objects.names.own(module if isinstance(module, str) else None))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.bound:
            return node
        if node.id in self.frame.f_locals:
            return self._value(self.frame.f_locals[node.id], node)
        value = self.frame.f_globals.get(node.id)
        if node.id in self.frame.f_globals and not callable(value) and not isinstance(value, types.ModuleType):
            return self._value(value, node)
        if node.id in self.frame.f_globals and getattr(value, "__module__", None) == self.frame.f_globals.get("__name__"):
            self.clear = False  # a helper of the tests
        elif node.id not in self.frame.f_globals and node.id not in _BUILTIN:
            self.clear = False
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" in self.frame.f_locals:
            try:
                return self._value(vars(self.frame.f_locals["self"])[node.attr], node)
            except (KeyError, TypeError):
                self.clear = False
                return node
        if (
            isinstance(node.value, ast.Name)
            and isinstance(self.frame.f_locals.get(node.value.id, ""), int | float | None)
            and node.value.id in self.frame.f_locals
        ):
            self.clear = False  # an attribute of a number or of None
        self.generic_visit(node)
        return node

    def _value(self, value: Any, node: ast.expr) -> ast.expr:
        text, clear = self.objects.show(value)
        if not clear or len(text) > _ROOM:
            self.clear = False
            return node
        return ast.Name(id=text, ctx=ast.Load())
