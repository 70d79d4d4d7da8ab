"""Bug injection: small changes of Python source that leave its comments and its layout as they are.

    for site in sites(source): broken = apply(source, site)

Each operator is a function in mutate_expressions.py, mutate_calls.py or mutate_statements.py that takes a `Spot`, one node of the syntax tree and
what is around it, and yields other nodes in its place. Never touched: docstrings, annotations, imports, assertions, messages of errors, logging,
`__version__` and its like, blocks for type checkers, `if __name__ == "__main__"`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from agentgym.errors import DataError

LONGEST = 12  # lines that one bug may remove and add; more is no slip of the hand


@dataclass(frozen=True)
class Function:
    """The function that a spot is in: what may be read in it, in the order of first binding → line (0: a parameter)."""

    node: cst.FunctionDef
    bound: dict[str, int]


@dataclass(frozen=True)
class Spot:
    """One node, and what is around it."""

    node: cst.CSTNode
    parents: tuple[cst.CSTNode, ...]  # from the module down
    scope: tuple[str, ...]
    function: Function | None
    fields: tuple[str, ...]  # attributes of `self` that the class around it reads
    line: Callable[[cst.CSTNode], CodeRange]

    @property
    def parent(self) -> cst.CSTNode:
        """Return the node that this one is a part of; of the module, itself."""
        return self.parents[-1] if self.parents else self.node


@dataclass(frozen=True)
class Change:
    """What an operator puts in the place of a node; `at` is the part of it that changes, where that is not the whole."""

    new: cst.CSTNode
    at: cst.CSTNode | None = None


@dataclass(frozen=True, order=True)
class Site:
    """One possible bug.

    node, variant   number of the node in document order, and of the operator's change there
    line, end       lines of the source, from 1, that the change is at
    scope           the function or class around it, "Class.method"; "" for the module's own level
    """

    line: int
    end: int
    operator: str
    node: int
    variant: int
    scope: str = field(compare=False)
    before: str = field(compare=False)


Operator = Callable[[Spot], Iterator[Change]]


def operators() -> dict[str, Operator]:
    """Return all operators by name."""
    from . import mutate_calls, mutate_expressions, mutate_statements

    return {f.__name__: f for module in (mutate_expressions, mutate_calls, mutate_statements) for f in module.OPERATORS}


def sites(source: str) -> list[Site]:
    """Return the places of a source where an operator has something to change, in the order of lines.

    Raises DataError for a source that is no Python.
    """
    parsed, out = _parsed(source), list[Site]()
    for number, spot in enumerate(parsed.spots):
        for name, operator in operators().items():
            for variant, change in enumerate(operator(spot)):
                where = spot.line(change.at or spot.node)
                before = parsed.module.code_for_node(change.at or spot.node).strip()
                out.append(Site(where.start.line, where.end.line, name, number, variant, ".".join(spot.scope), before))
    return sorted(out)


def apply(source: str, site: Site) -> str:
    """Return the source with the bug. Raises DataError where the site is not of this source, or the result is no Python or no small change."""
    parsed = _parsed(source)
    change = None
    if site.operator in operators() and 0 <= site.node < len(parsed.spots):
        spot = parsed.spots[site.node]
        change = next((c for i, c in enumerate(operators()[site.operator](spot)) if i == site.variant), None)
    if change is None or parsed.module.code_for_node(change.at or spot.node).strip() != site.before:
        raise DataError(f"the source has no site {site.operator} at line {site.line}, {site.before[:60]!r}; sites(source) lists them")
    new = parsed.module.deep_replace(spot.node, change.new)
    assert isinstance(new, cst.Module)
    broken = new.code
    try:
        compile(broken, "<bug>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as e:
        raise DataError(f"{site.operator} at line {site.line} gives no Python: {e}") from e
    changed = _changed(source, broken)
    if not 0 < changed <= LONGEST:
        raise DataError(f"{site.operator} at line {site.line} changes {changed} lines; allowed: 1 to {LONGEST}")
    return broken


def _changed(before: str, after: str) -> int:
    """Return how many lines were removed and added, between what is equal at the start and at the end."""
    old, new = before.split("\n"), after.split("\n")
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new = old[same:], new[same:]
    tail = next((i for i, (a, b) in enumerate(zip(reversed(old), reversed(new), strict=False)) if a != b), min(len(old), len(new)))
    return len(old) + len(new) - 2 * tail


# --- the walk ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parsed:
    module: cst.Module
    spots: list[Spot]


@functools.lru_cache(maxsize=8)
def _parsed(source: str) -> _Parsed:
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as e:
        raise DataError(f"the source is no Python: {e}") from e
    # The tree comes from the parser, which makes each node once: no copy is needed.
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    start = Spot(module, (), (), None, (), lambda node: positions[node])
    return _Parsed(module, list(_walk(start)))


_PASSED_BY = (cst.Decorator, cst.Annotation, cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Comment, cst.Newline)


def _walk(spot: Spot) -> Iterator[Spot]:
    """Yield the spots of a tree in document order, without what must not be touched."""
    if untouchable(spot.node):
        return
    yield spot
    if isinstance(spot.node, cst.Raise):  # what an error says is not what it does
        return
    node, function, scope, fields = spot.node, spot.function, spot.scope, spot.fields
    if isinstance(node, cst.FunctionDef):
        scope, function = (*scope, node.name.value), Function(node, _bound(node, spot.line, function))
    elif isinstance(node, cst.ClassDef):
        scope, function, fields = (*scope, node.name.value), None, _fields(node)
    for child in node.children:
        if not isinstance(child, _PASSED_BY):
            yield from _walk(Spot(child, (*spot.parents, node), scope, function, fields, spot.line))


def untouchable(node: cst.CSTNode) -> bool:
    """Return whether a node and what is in it must stay as they are."""
    match node:
        case cst.Import() | cst.ImportFrom() | cst.Assert() | cst.Global() | cst.Nonlocal() | cst.FormattedString() | cst.ConcatenatedString():
            return True
        case cst.Expr(value=cst.SimpleString()):  # a docstring, or a comment in the form of one
            return True
        case cst.Expr(value=cst.Call(func=func)) if _talks(func):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name)), *_]) | cst.AnnAssign(target=cst.Name(value=name)):
            return name.startswith("__") and name.endswith("__")
        case cst.If(test=test):
            words = {n.value for n in _names(test)}
            return bool(words & {"TYPE_CHECKING", "__name__", "version_info", "PY2", "PY3"})
        case cst.FunctionDef(decorators=decorators):
            return any(n.value == "overload" for d in decorators for n in _names(d))
    return False


def _talks(func: cst.BaseExpression) -> bool:
    """Return whether a call only tells somebody something: logging, a warning, a print."""
    first = next(iter(_names(func)), None)
    return first is not None and first.value in ("log", "logger", "logging", "warnings", "warn", "print")


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    if isinstance(node, cst.Name):
        yield node
    for child in node.children:
        yield from _names(child)


def _bound(function: cst.FunctionDef, line: Callable[[cst.CSTNode], CodeRange], outer: Function | None) -> dict[str, int]:
    """Return the names that a function binds, with the line of the first time."""
    p = function.params
    given = [*p.posonly_params, *p.params, *([p.star_arg] if isinstance(p.star_arg, cst.Param) else []), *p.kwonly_params]
    given += [p.star_kwarg] if p.star_kwarg else []
    out = {name: 0 for name in outer.bound} if outer else {}
    out |= {param.name.value: 0 for param in given}
    for target in _targets(function.body):
        for name in stored(target):
            out.setdefault(name.value, line(name).start.line)
    return out


def _targets(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield what is assigned to in a body, nested functions, classes and comprehensions left out."""
    match node:
        case cst.FunctionDef() | cst.ClassDef() | cst.Lambda() | cst.BaseComp():
            return
        case cst.AssignTarget(target=target) | cst.AnnAssign(target=target) | cst.AugAssign(target=target) | cst.For(target=target):
            yield target
        case cst.NamedExpr(target=target) | cst.AsName(name=target):
            yield target
    for child in node.children:
        yield from _targets(child)


def stored(target: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names that a target of an assignment binds."""
    match target:
        case cst.Name():
            yield target
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            for element in elements:
                yield from stored(element.value)


def _fields(node: cst.CSTNode) -> tuple[str, ...]:
    """Return the attributes of `self` that a class reads without calling them, each once, in the order of the text."""
    out: dict[str, None] = {}

    def look(node: cst.CSTNode, called: bool) -> None:
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self" and not called:
            out.setdefault(node.attr.value)
        for child in node.children:
            look(child, isinstance(node, cst.Call) and child is node.func)

    look(node, False)
    return tuple(out)
