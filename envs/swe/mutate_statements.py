"""Operators on statements: what is missing, in the wrong order, or in the wrong block. A site is a block; the change is at one statement of it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from .mutate import Change, Operator, Spot, stored, untouchable

_SHORT = 6  # lines of a statement that may vanish as a whole


def _statements(spot: Spot) -> Iterator[tuple[int, cst.BaseStatement, list[cst.BaseStatement]]]:
    """Yield each statement of a function's block: its number, itself, all of them."""
    if isinstance(spot.node, cst.IndentedBlock) and spot.function is not None:
        body = list(spot.node.body)
        yield from ((i, statement, body) for i, statement in enumerate(body))


def _without(spot: Spot, i: int, *instead: cst.BaseStatement) -> Change:
    """Return the block with other statements, or none, in the place of number i; `pass` where nothing is left."""
    assert isinstance(spot.node, cst.IndentedBlock)
    body = [*spot.node.body[:i], *instead, *spot.node.body[i + 1 :]]
    empty = not any(not _is_docstring(s) for s in body)
    return Change(spot.node.with_changes(body=[*body, cst.SimpleStatementLine([cst.Pass()])] if empty else body), spot.node.body[i])


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.BaseString)
    )


def _small(statement: cst.BaseStatement) -> cst.BaseSmallStatement | None:
    """Return the one small statement of a line; None for several, for a compound one, and for one that must stay."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1 or untouchable(statement.body[0]):
        return None
    return statement.body[0]


def _known(spot: Spot, target: cst.BaseExpression) -> bool:
    """Return whether everything that a target binds was bound before, so that it can still be read without the assignment."""
    assert spot.function is not None
    line = spot.line(target).start.line
    return all(spot.function.bound.get(name.value, line) < line for name in stored(target))


def _reads(node: cst.CSTNode) -> set[str]:
    out = {node.value} if isinstance(node, cst.Name) else set()
    return out.union(*(_reads(child) for child in node.children))


def _writes(small: cst.BaseSmallStatement) -> list[cst.BaseExpression]:
    match small:
        case cst.Assign(targets=targets):
            return [t.target for t in targets]
        case cst.AugAssign(target=target) | cst.AnnAssign(target=target):
            return [target]
    return []


def drop_assignment(spot: Spot) -> Iterator[Change]:
    """`x = …`, `x += …`, `a.b = …` vanishes, where x has a value without it."""
    for i, statement, _ in _statements(spot):
        small = _small(statement)
        if small is not None and _writes(small) and all(_known(spot, target) for target in _writes(small)):
            yield _without(spot, i)


def drop_call_statement(spot: Spot) -> Iterator[Change]:
    """A call for its effect vanishes: `items.append(x)`, `super().__init__()`."""
    for i, statement, _ in _statements(spot):
        small = _small(statement)
        if (isinstance(small, cst.Expr) and isinstance(small.value, cst.Call | cst.Yield | cst.Await)) or isinstance(small, cst.Del):
            yield _without(spot, i)


def drop_jump(spot: Spot) -> Iterator[Change]:
    """`continue` or `break` vanishes, or one stands for the other (not in a `while`, which might never end)."""
    loop = next((p for p in reversed(spot.parents) if isinstance(p, cst.For | cst.While | cst.FunctionDef)), None)
    for i, statement, _ in _statements(spot):
        small = _small(statement)
        if isinstance(small, cst.Continue | cst.Break) and isinstance(loop, cst.For):
            yield _without(spot, i)
            other = cst.Break() if isinstance(small, cst.Continue) else cst.Continue()
            yield _without(spot, i, statement.with_changes(body=[other]))


def drop_return(spot: Spot) -> Iterator[Change]:
    """The last `return x` of a function becomes `x`, where x is a call; otherwise it vanishes."""
    for i, statement, body in _statements(spot):
        small = _small(statement)
        if isinstance(small, cst.Return) and small.value is not None and i == len(body) - 1 and isinstance(spot.parent, cst.FunctionDef):
            if isinstance(small.value, cst.Call):
                yield _without(spot, i, statement.with_changes(body=[cst.Expr(small.value)]))
            elif i and not (i == 1 and _is_docstring(body[0])):
                yield _without(spot, i)


def early_return(spot: Spot) -> Iterator[Change]:
    """The `return` after a `for` moves to the end of its body."""
    for i, statement, body in _statements(spot):
        if isinstance(statement, cst.For) and statement.orelse is None and i + 1 < len(body) and isinstance(statement.body, cst.IndentedBlock):
            small = _small(body[i + 1])
            if isinstance(small, cst.Return):
                inner = statement.body.with_changes(body=[*statement.body.body, body[i + 1].with_changes(leading_lines=[])])
                block = spot.node.with_changes(body=[*body[:i], statement.with_changes(body=inner), *body[i + 2 :]])
                yield Change(block, body[i + 1])


def shuffle_lines(spot: Spot) -> Iterator[Change]:
    """Two lines that depend on each other change places, where nothing is read before it has a value."""
    for i, statement, body in _statements(spot):
        if i + 1 == len(body):
            return
        one, two = _small(statement), _small(body[i + 1])
        if one is None or two is None or not all(isinstance(s, cst.Assign | cst.AugAssign | cst.Expr) for s in (one, two)) or one.deep_equals(two):
            continue
        changed = [n.value for s in (one, two) for target in _writes(s) for n in stored(target)]
        both = _reads(one) & _reads(two) - {"self"}
        known = all(_known(spot, target) for target in _writes(one)) and not _is_docstring(statement)
        if both and known and (any(name in both for name in changed) or not changed):
            swapped = [body[i + 1].with_changes(leading_lines=_lead(statement)), statement.with_changes(leading_lines=_lead(body[i + 1]))]
            yield Change(spot.node.with_changes(body=[*body[:i], *swapped, *body[i + 2 :]]), statement)


def _lead(statement: cst.BaseStatement) -> object:
    return getattr(statement, "leading_lines", ())


def drop_guard(spot: Spot) -> Iterator[Change]:
    """A short `if` without `else` vanishes."""
    for i, statement, _ in _statements(spot):
        if isinstance(statement, cst.If) and statement.orelse is None and _height(spot, statement) <= _SHORT:
            yield _without(spot, i)


def drop_test(spot: Spot) -> Iterator[Change]:
    """The body of a short `if` is done always."""
    for i, statement, _ in _statements(spot):
        if not isinstance(statement, cst.If) or statement.orelse is not None or _height(spot, statement) > _SHORT:
            continue
        if isinstance(statement.body, cst.IndentedBlock):
            last = _small(statement.body.body[-1])
            if not isinstance(last, cst.Return | cst.Raise | cst.Continue | cst.Break):
                first, *rest = statement.body.body
                yield _without(spot, i, first.with_changes(leading_lines=_lead(statement)), *rest)


def drop_branch(spot: Spot) -> Iterator[Change]:
    """An `else` or an `elif` vanishes with its body."""
    node = spot.node
    if isinstance(node, cst.If) and spot.function is not None:
        if isinstance(node.orelse, cst.Else) and _height(spot, node.orelse) <= _SHORT:
            yield Change(node.with_changes(orelse=None), node.orelse)
        elif isinstance(node.orelse, cst.If) and _height(spot, node.orelse.test) + _height(spot, node.orelse.body) <= _SHORT:
            yield Change(node.with_changes(orelse=node.orelse.orelse), node.orelse.test)


def swap_branches(spot: Spot) -> Iterator[Change]:
    """The bodies of a short `if` and its `else` change places."""
    node = spot.node
    if isinstance(node, cst.If) and isinstance(node.orelse, cst.Else) and spot.function is not None and _height(spot, node) <= _SHORT:
        yield Change(node.with_changes(body=node.orelse.body, orelse=node.orelse.with_changes(body=node.body)))


def drop_try(spot: Spot) -> Iterator[Change]:
    """The short body of a `try` stands without its handlers."""
    for i, statement, _ in _statements(spot):
        if not isinstance(statement, cst.Try) or statement.finalbody is not None or statement.orelse is not None:
            continue
        if isinstance(statement.body, cst.IndentedBlock) and _height(spot, statement) <= _SHORT + 2:
            first, *rest = statement.body.body
            yield _without(spot, i, first.with_changes(leading_lines=_lead(statement)), *rest)


def _height(spot: Spot, node: cst.CSTNode) -> int:
    where = spot.line(node)
    return where.end.line - where.start.line + 1


def drop_base(spot: Spot) -> Iterator[Change]:
    """A class loses its last base."""
    node = spot.node
    if isinstance(node, cst.ClassDef) and node.bases and not (isinstance(node.bases[-1].value, cst.Name) and node.bases[-1].value.value == "object"):
        bases = node.bases[:-1]
        bases = [*bases[:-1], bases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)] if bases else []
        bare = {} if bases or node.keywords else {"lpar": cst.MaybeSentinel.DEFAULT, "rpar": cst.MaybeSentinel.DEFAULT}
        yield Change(node.with_changes(bases=bases, **bare), node.bases[-1])


def drop_method(spot: Spot) -> Iterator[Change]:
    """A short method vanishes, so that the class has the one of its base or none."""
    if isinstance(spot.node, cst.IndentedBlock) and isinstance(spot.parent, cst.ClassDef) and len(spot.node.body) > 2:
        for i, statement in enumerate(spot.node.body):
            if isinstance(statement, cst.FunctionDef) and _height(spot, statement) <= _SHORT + 2:
                yield _without(spot, i)


def drop_decorator(spot: Spot) -> Iterator[Change]:
    """A function loses its first decorator."""
    node = spot.node
    if isinstance(node, cst.FunctionDef) and node.decorators:
        yield Change(node.with_changes(decorators=node.decorators[1:]), node.decorators[0])


OPERATORS: tuple[Operator, ...] = (
    drop_assignment,
    drop_call_statement,
    drop_jump,
    drop_return,
    early_return,
    shuffle_lines,
    drop_guard,
    drop_test,
    drop_branch,
    swap_branches,
    drop_try,
    drop_base,
    drop_method,
    drop_decorator,
)
