"""Operators on expressions: comparisons, arithmetic, conditions, constants."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from .mutate import Change, Operator, Spot

_BOUNDARY: dict[type, type] = {
    cst.LessThan: cst.LessThanEqual,
    cst.LessThanEqual: cst.LessThan,
    cst.GreaterThan: cst.GreaterThanEqual,
    cst.GreaterThanEqual: cst.GreaterThan,
}
_NEGATED: dict[type, type] = {
    cst.Equal: cst.NotEqual,
    cst.NotEqual: cst.Equal,
    cst.In: cst.NotIn,
    cst.NotIn: cst.In,
    cst.Is: cst.IsNot,
    cst.IsNot: cst.Is,
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
_ARITHMETIC: dict[type, type] = {
    cst.Add: cst.Subtract,
    cst.Subtract: cst.Add,
    cst.Multiply: cst.Add,
    cst.Divide: cst.Multiply,
    cst.FloorDivide: cst.Divide,
    cst.Modulo: cst.FloorDivide,
    cst.BitAnd: cst.BitOr,
    cst.BitOr: cst.BitAnd,
    cst.LeftShift: cst.RightShift,
    cst.RightShift: cst.LeftShift,
    cst.Power: cst.Multiply,
}
_AUGMENTED: dict[type, type] = {
    cst.AddAssign: cst.SubtractAssign,
    cst.SubtractAssign: cst.AddAssign,
    cst.MultiplyAssign: cst.AddAssign,
    cst.BitOrAssign: cst.BitAndAssign,
    cst.BitAndAssign: cst.BitOrAssign,
}
_LETTERS = {"_": "-", "-": "_", ".": ",", ",": ".", ";": ",", ":": ";", " ": "", "/": "-", "@": "#", "#": "@", "&": "|", "=": ":", "+": "-", "*": "+"}
_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseString, cst.BaseNumber, cst.BaseList, cst.BaseDict, cst.BaseSet)


def compare_boundary(spot: Spot) -> Iterator[Change]:
    """`a < b` → `a <= b`, and the other three."""
    yield from _compared(spot, _BOUNDARY)


def compare_negate(spot: Spot) -> Iterator[Change]:
    """`a == b` → `a != b`, `a < b` → `a > b`, `in` → `not in`, `is` → `is not`, and back."""
    yield from _compared(spot, _NEGATED)


def _compared(spot: Spot, table: dict[type, type]) -> Iterator[Change]:
    if not isinstance(spot.node, cst.Comparison):
        return
    for i, target in enumerate(spot.node.comparisons):
        if type(target.operator) in table:
            new = target.with_changes(operator=_like(target.operator, table[type(target.operator)]))
            yield Change(spot.node.with_changes(comparisons=[*spot.node.comparisons[:i], new, *spot.node.comparisons[i + 1 :]]))


def _like(operator: cst.CSTNode, kind: type) -> cst.CSTNode:
    """Return an operator of another kind, with the same space around it."""
    new: cst.CSTNode = kind(whitespace_before=operator.whitespace_before, whitespace_after=operator.whitespace_after)  # type: ignore[attr-defined]
    return new


def arithmetic(spot: Spot) -> Iterator[Change]:
    """`a + b` → `a - b`, `a % b` → `a // b`, `&` → `|`, `x += 1` → `x -= 1`, and so on."""
    node = spot.node
    if isinstance(node, cst.BinaryOperation) and type(node.operator) in _ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
        yield Change(node.with_changes(operator=_like(node.operator, _ARITHMETIC[type(node.operator)])))
    if isinstance(node, cst.AugAssign) and type(node.operator) in _AUGMENTED and not _is_text(node.value):
        yield Change(node.with_changes(operator=_like(node.operator, _AUGMENTED[type(node.operator)])))


def _is_text(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.BaseString | cst.List | cst.Tuple) or (
        isinstance(node, cst.BinaryOperation) and (_is_text(node.left) or _is_text(node.right))
    )


def forget_total(spot: Spot) -> Iterator[Change]:
    """`x += y` → `x = y`."""
    if isinstance(spot.node, cst.AugAssign):
        yield Change(cst.Assign([cst.AssignTarget(spot.node.target)], spot.node.value, spot.node.semicolon))


def swap_operands(spot: Spot) -> Iterator[Change]:
    """`a - b` → `b - a`; also for `+`, `/`, `//`, and `%` of numbers."""
    node = spot.node
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Add | cst.Subtract | cst.Divide | cst.FloorDivide | cst.Modulo):
        return
    if (isinstance(node.operator, cst.Modulo) and _is_text(node.left)) or (
        isinstance(node.left, cst.BaseNumber) and isinstance(node.operator, cst.Add)
    ):
        return
    if not node.left.deep_equals(node.right) and not isinstance(node.right, cst.BaseNumber):
        yield Change(node.with_changes(left=node.right, right=node.left))


def break_chain(spot: Spot) -> Iterator[Change]:
    """`a + b` → `a`, or `b` where that is not a number; so `a + b + c` → `a + b`, `c`, `a + c`, `b + c`."""
    node = spot.node
    if not isinstance(node, cst.BinaryOperation) or (isinstance(node.operator, cst.Modulo) and _is_text(node.left)):
        return
    yield Change(_part(node.left, node))
    if not isinstance(node.right, cst.BaseNumber):
        yield Change(_part(node.right, node))


def _part(part: cst.BaseExpression, whole: cst.BaseExpression) -> cst.BaseExpression:
    """Return a part of an expression to stand for the whole, in the parentheses of the whole if it needs some."""
    return part if isinstance(part, _ATOMS) or part.lpar else part.with_changes(lpar=whole.lpar, rpar=whole.rpar)


def and_or(spot: Spot) -> Iterator[Change]:
    """`a and b` → `a or b`, and back."""
    if isinstance(spot.node, cst.BooleanOperation):
        kind = cst.Or if isinstance(spot.node.operator, cst.And) else cst.And
        yield Change(spot.node.with_changes(operator=_like(spot.node.operator, kind)))


def drop_condition(spot: Spot) -> Iterator[Change]:
    """`a and b` → `a`, or `b`; the same for `or`."""
    if isinstance(spot.node, cst.BooleanOperation):
        yield Change(_part(spot.node.left, spot.node))
        yield Change(_part(spot.node.right, spot.node))


def drop_not(spot: Spot) -> Iterator[Change]:
    """`not a` → `a`, `-a` → `a`."""
    node = spot.node
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not | cst.Minus):
        yield Change(_part(node.expression, node))


def off_by_one(spot: Spot) -> Iterator[Change]:
    """A whole number n → n + 1 and n - 1; `range(n)` → `range(n - 1)`; `a[i:]` → `a[i + 1:]`, `a[:j]` → `a[:j - 1]`."""
    node, one = spot.node, cst.Integer("1")
    if isinstance(node, cst.Integer) and node.value.isdigit() and not isinstance(spot.parent, cst.Param):
        yield Change(node.with_changes(value=str(int(node.value) + 1)))
        if int(node.value):
            yield Change(node.with_changes(value=str(int(node.value) - 1)))
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "range" and node.args:
        last = node.args[-1]
        if isinstance(last.value, _ATOMS) and not isinstance(last.value, cst.BaseNumber) and not last.star:
            yield Change(node.with_changes(args=[*node.args[:-1], last.with_changes(value=cst.BinaryOperation(last.value, cst.Subtract(), one))]))
    if isinstance(node, cst.Slice):
        if isinstance(node.lower, _ATOMS) and not isinstance(node.lower, cst.BaseNumber):
            yield Change(node.with_changes(lower=cst.BinaryOperation(node.lower, cst.Add(), one)))
        if isinstance(node.upper, _ATOMS) and not isinstance(node.upper, cst.BaseNumber):
            yield Change(node.with_changes(upper=cst.BinaryOperation(node.upper, cst.Subtract(), one)))


def slice_bound(spot: Spot) -> Iterator[Change]:
    """`a[i:j]` → `a[i:]` and `a[:j]`; `a[::k]` → `a[::]`."""
    if isinstance(spot.node, cst.Slice):
        for bound in ("lower", "upper", "step"):
            if getattr(spot.node, bound) is not None:
                yield Change(spot.node.with_changes(**{bound: None}))


def change_constant(spot: Spot) -> Iterator[Change]:
    """`True` → `False` and back; a text: another mark, or a letter less at its end; a float: twice of it."""
    if not isinstance(spot.parent, cst.Param):
        new = _other_constant(spot.node)
        if new is not None:
            yield Change(new)


def wrong_default(spot: Spot) -> Iterator[Change]:
    """`def f(a=True)` → `def f(a=False)`; numbers and texts likewise, and None for a text or a number."""
    node = spot.node
    if not isinstance(node, cst.Param) or node.default is None:
        return
    new = _other_constant(node.default)
    if isinstance(node.default, cst.Integer) and node.default.value.isdigit():
        new = cst.Integer(str(int(node.default.value) + 1))
    if new is not None:
        yield Change(node.with_changes(default=new))


def _other_constant(node: cst.CSTNode) -> cst.BaseExpression | None:
    match node:
        case cst.Name(value="True" | "False"):
            return node.with_changes(value="False" if node.value == "True" else "True")
        case cst.Float():
            return cst.Float(repr(float(node.value) * 2))
        case cst.SimpleString() if "r" not in node.prefix.lower():
            text, quote = node.raw_value, node.quote
            new = _other_text(text)
            return None if new is None else node.with_changes(value=f"{node.prefix}{quote}{new}{quote}")
    return None


def _other_text(text: str) -> str | None:
    if len(text) == 1:
        return _LETTERS.get(text)
    if not text:
        return " "
    if re.fullmatch(r"[A-Za-z_][\w -]*", text) and len(text) > 2:
        return text[:-1]
    return text.rstrip(" ") if text.endswith(" ") and text.strip(" ") else None


def change_pattern(spot: Spot) -> Iterator[Change]:
    """A regular expression loses its anchor or counts otherwise: `^a+$` → `a+$`, `^a+`, `^a*$`; `\\d` → `\\w`."""
    node = spot.node
    if not isinstance(node, cst.SimpleString) or "r" not in node.prefix.lower():
        return
    text = node.raw_value
    for old, new in (
        (r"^\^", ""),
        (r"\$$", ""),
        (r"(?<=[\])\w.])\+", "*"),
        (r"(?<=[\])\w.])\*", "+"),
        (r"(?<=[\])\w])\?", ""),
        (r"\\d", r"\\w"),
        (r"\[\^", "["),
    ):
        changed = re.sub(old, new, text, count=1)
        if changed != text and changed and _compiles(changed):
            yield Change(node.with_changes(value=f"{node.prefix}{node.quote}{changed}{node.quote}"))


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        return False
    return True


def invert_if(spot: Spot) -> Iterator[Change]:
    """`if a:` → `if not a:`; `x if a else y` → `y if a else x`."""
    node = spot.node
    if isinstance(node, cst.If) and isinstance(node.test, cst.Name | cst.Attribute | cst.Call | cst.Subscript) and not node.test.lpar:
        yield Change(node.with_changes(test=cst.UnaryOperation(cst.Not(), node.test)), node.test)
    if isinstance(node, cst.IfExp) and not node.body.deep_equals(node.orelse):
        yield Change(node.with_changes(body=node.orelse, orelse=node.body))


def drop_element(spot: Spot) -> Iterator[Change]:
    """A list, tuple, set or dictionary of three or more loses one element."""
    node = spot.node
    if isinstance(node, cst.List | cst.Tuple | cst.Set | cst.Dict) and len(node.elements) >= 3:
        for i, element in enumerate(node.elements):
            yield Change(node.with_changes(elements=[*node.elements[:i], *node.elements[i + 1 :]]), element)


def swap_pair(spot: Spot) -> Iterator[Change]:
    """`return a, b` → `return b, a`; also where a pair is assigned."""
    node = spot.node
    if isinstance(node, cst.Tuple) and len(node.elements) == 2 and isinstance(spot.parent, cst.Return | cst.Assign | cst.Arg | cst.Yield):
        a, b = node.elements
        if not a.value.deep_equals(b.value) and isinstance(a, cst.Element) and isinstance(b, cst.Element):
            yield Change(node.with_changes(elements=[a.with_changes(value=b.value), b.with_changes(value=a.value)]))


OPERATORS: tuple[Operator, ...] = (
    compare_boundary,
    compare_negate,
    arithmetic,
    forget_total,
    swap_operands,
    break_chain,
    and_or,
    drop_condition,
    drop_not,
    off_by_one,
    slice_bound,
    change_constant,
    wrong_default,
    change_pattern,
    invert_if,
    drop_element,
    swap_pair,
)
