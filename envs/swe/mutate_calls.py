"""Operators on names and calls: the wrong variable, the wrong function, arguments that are swapped or missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import libcst as cst

from .mutate import Change, Operator, Spot

_PAIRS = (
    "append extend, lstrip rstrip, startswith endswith, lower upper, islower isupper, isdigit isalpha, keys values, find rfind, index rindex, "
    "split rsplit, partition rpartition, min max, any all, ljust rjust, floor ceil, union intersection, issubset issuperset, start end"
)
_OTHER = {a: b for pair in _PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
_OTHER |= {"items": "keys", "strip": "rstrip", "search": "match", "match": "fullmatch", "fullmatch": "match", "add": "discard", "popleft": "pop"}
_OTHER |= {"appendleft": "append", "title": "capitalize", "capitalize": "title"}
_WRAPPERS = frozenset(
    {"list", "tuple", "set", "frozenset", "sorted", "reversed", "str", "int", "float", "abs", "dict", "iter", "bool", "repr", "deepcopy", "copy"}
)
_TRIMMERS = frozenset("strip lstrip rstrip lower upper casefold copy replace title capitalize swapcase expandtabs".split())
_OPTIONAL = {
    "get": 2,
    "pop": 2,
    "getattr": 3,
    "split": 2,
    "rsplit": 2,
    "next": 2,
    "replace": 3,
    "max": 2,
    "min": 2,
    "setdefault": 2,
    "sum": 2,
    "enumerate": 2,
    "startswith": 2,
    "find": 2,
    "index": 2,
}
_ORDERED = frozenset("isinstance issubclass getattr setattr hasattr print super range open dict property".split())
_ERRORS = {
    "ValueError": "TypeError",
    "TypeError": "ValueError",
    "KeyError": "IndexError",
    "IndexError": "KeyError",
    "AttributeError": "TypeError",
    "StopIteration": "IndexError",
    "LookupError": "ValueError",
    "RuntimeError": "ValueError",
    "NotImplementedError": "TypeError",
    "UnicodeDecodeError": "UnicodeEncodeError",
    "ImportError": "AttributeError",
    "OSError": "ValueError",
}


def wrong_variable(spot: Spot) -> Iterator[Change]:
    """A variable that is read becomes a neighbour: the one that the function bound before it, or after it."""
    node, function = spot.node, spot.function
    if not isinstance(node, cst.Name) or function is None or node.value not in function.bound or not _is_read(spot):
        return
    here = spot.line(node).start.line
    names = [n for n, line in function.bound.items() if (line < here) and n not in ("self", "cls", "_") and not n.startswith("__")]
    if node.value not in names:
        return
    at = names.index(node.value)
    for i in (at - 1, at + 1):
        if 0 <= i < len(names):
            yield Change(node.with_changes(value=names[i]))


def _is_read(spot: Spot) -> bool:
    """Return whether a name is read here, for itself: no target, no attribute's name, no keyword, no function that is called."""
    node, parent = spot.node, spot.parent
    match parent:
        case cst.Attribute(attr=attr) | cst.Arg(keyword=attr) if attr is node:
            return False
        case cst.Call(func=func):
            return func is not node
        case cst.AugAssign(target=target) | cst.AnnAssign(target=target) | cst.For(target=target) | cst.CompFor(target=target) if target is node:
            return False
        case (
            cst.AssignTarget()
            | cst.Param()
            | cst.FunctionDef()
            | cst.ClassDef()
            | cst.AsName()
            | cst.NamedExpr()
            | cst.Del()
            | cst.NameItem()
            | cst.ExceptHandler()
        ):
            return False
        case cst.Element() | cst.StarredElement():
            return not any(_is_target(p, c) for p, c in zip(spot.parents, [*spot.parents[1:], node], strict=True))
    return True


def _is_target(parent: cst.CSTNode, child: cst.CSTNode) -> bool:
    return isinstance(parent, cst.AssignTarget | cst.For | cst.CompFor) and parent.target is child


def wrong_attribute(spot: Spot) -> Iterator[Change]:
    """`self.a` → `self.b`, where the class reads both."""
    node = spot.node
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self" and node.attr.value in spot.fields:
        called = isinstance(spot.parent, cst.Call) and spot.parent.func is node
        stored = isinstance(spot.parent, cst.AssignTarget | cst.AugAssign) or any(map(_is_target, spot.parents, [*spot.parents[1:], node]))
        if len(spot.fields) > 1 and not called and not stored:
            other = spot.fields[(spot.fields.index(node.attr.value) + 1) % len(spot.fields)]
            yield Change(node.with_changes(attr=cst.Name(other)))


def wrong_function(spot: Spot) -> Iterator[Change]:
    """`lstrip` → `rstrip`, `min` → `max`, `any` → `all`, `match` → `search`, `items()` → `keys()`, and so on."""
    node = spot.node
    if not isinstance(node, cst.Call):
        return
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if isinstance(name, cst.Name):
        other = _OTHER.get(name.value)
        if other and (isinstance(node.func, cst.Attribute) or name.value in ("min", "max", "any", "all")):
            new = name.with_changes(value=other)
            yield Change(node.with_changes(func=node.func.with_changes(attr=new) if isinstance(node.func, cst.Attribute) else new))


def unwrap_call(spot: Spot) -> Iterator[Change]:
    """`sorted(x)` → `x`; also for list, tuple, set, str, int, abs, reversed, copy and their like."""
    node = spot.node
    if (
        isinstance(node, cst.Call)
        and len(node.args) == 1
        and not node.args[0].star
        and not node.args[0].keyword
        and not isinstance(spot.parent, cst.Expr)
    ):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        if isinstance(name, cst.Name) and name.value in _WRAPPERS and not isinstance(node.args[0].value, cst.GeneratorExp):
            value = node.args[0].value
            operand = isinstance(spot.parent, cst.BinaryOperation | cst.Comparison | cst.ComparisonTarget | cst.UnaryOperation)
            negation = isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Not)  # `a + not b` is no Python
            if not value.lpar and (isinstance(value, cst.BinaryOperation) or (negation and operand)):
                value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            yield Change(value)


def drop_call(spot: Spot) -> Iterator[Change]:
    """`x.strip()` → `x`; also for lower, replace, copy and their like, in a chain or alone."""
    node = spot.node
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in _TRIMMERS
        and not isinstance(spot.parent, cst.Expr)
    ):
        yield Change(node.func.value)


def swap_arguments(spot: Spot) -> Iterator[Change]:
    """`f(a, b)` → `f(b, a)`, `f(a, b, c)` → `f(a, c, b)`."""
    node = spot.node
    if not isinstance(node, cst.Call) or (isinstance(node.func, cst.Name) and node.func.value in _ORDERED):
        return
    plain = [i for i, a in enumerate(node.args) if not a.star and not a.keyword]
    for i, j in itertools.pairwise(plain):
        a, b = node.args[i], node.args[j]
        if not a.value.deep_equals(b.value):
            args = list(node.args)
            args[i], args[j] = a.with_changes(value=b.value), b.with_changes(value=a.value)
            yield Change(node.with_changes(args=args))


def drop_argument(spot: Spot) -> Iterator[Change]:
    """`f(x, strict=True)` → `f(x)`; `d.get(k, 0)` → `d.get(k)` and the like."""
    node = spot.node
    if not isinstance(node, cst.Call) or not node.args:
        return
    for i, arg in enumerate(node.args):
        if arg.keyword is not None:
            yield Change(node.with_changes(args=_without(node.args, i)), arg)
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if isinstance(name, cst.Name) and _OPTIONAL.get(name.value) == len(node.args) and not any(a.star or a.keyword for a in node.args):
        yield Change(node.with_changes(args=_without(node.args, len(node.args) - 1)), node.args[-1])


def _without(args: Sequence[cst.Arg], i: int) -> list[cst.Arg]:
    """Return the arguments without one of them; the new last one has no comma where the old last one had none."""
    left = [*args[:i], *args[i + 1 :]]
    if left and i == len(args) - 1:
        left[-1] = left[-1].with_changes(comma=args[-1].comma, whitespace_after_arg=args[-1].whitespace_after_arg)
    return left


def wrong_error(spot: Spot) -> Iterator[Change]:
    """`raise ValueError(…)` → `raise TypeError(…)`; `except KeyError` → `except IndexError`; one of several errors is caught no more."""
    node = spot.node
    if isinstance(node, cst.Raise) and isinstance(node.exc, cst.Call | cst.Name):
        name = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
        if isinstance(name, cst.Name) and name.value in _ERRORS:
            new = name.with_changes(value=_ERRORS[name.value])
            yield Change(node.with_changes(exc=node.exc.with_changes(func=new) if isinstance(node.exc, cst.Call) else new))
    if isinstance(node, cst.ExceptHandler) and node.type is not None:
        if isinstance(node.type, cst.Name) and node.type.value in _ERRORS:
            yield Change(node.with_changes(type=node.type.with_changes(value=_ERRORS[node.type.value])), node.type)
        if isinstance(node.type, cst.Tuple) and len(node.type.elements) == 2:
            for i in (0, 1):
                yield Change(node.with_changes(type=node.type.elements[i].value), node.type)


def swap_key_value(spot: Spot) -> Iterator[Change]:
    """`d[k] = v` → `d[v] = k`."""
    node = spot.node
    if isinstance(node, cst.Assign) and len(node.targets) == 1 and isinstance(node.value, cst.Name):
        target = node.targets[0].target
        if isinstance(target, cst.Subscript) and len(target.slice) == 1 and isinstance(target.slice[0].slice, cst.Index):
            key = target.slice[0].slice.value
            if isinstance(key, cst.Name) and key.value != node.value.value:
                index = target.slice[0].with_changes(slice=cst.Index(node.value))
                yield Change(node.with_changes(targets=[node.targets[0].with_changes(target=target.with_changes(slice=[index]))], value=key))


OPERATORS: tuple[Operator, ...] = (
    wrong_variable,
    wrong_attribute,
    wrong_function,
    unwrap_call,
    drop_call,
    swap_arguments,
    drop_argument,
    wrong_error,
    swap_key_value,
)
