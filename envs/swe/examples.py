"""What a bug changes, seen from outside: the calls of failing tests that give something else than before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_EACH = 6  # of one test


@dataclass(frozen=True)
class Example:
    """One call with a wrong result.

    name      the function as a user imports it, "inflection.camelize"; "" where only an expression is known
    call      Python text
    setup     lines to run before
    expected, actual   ("value", text), ("object", type), ("items", text …), ("error", type, message), ("works",), ("true",), ("false",)
    test      number of the failing test, by which examples of different tests are told apart
    sure      the expected result was seen, not guessed from how an assertion is written
    """

    name: str
    call: str
    setup: tuple[str, ...]
    expected: tuple[str, ...]
    actual: tuple[str, ...]
    test: int = 0
    sure: bool = True

    def as_row(self) -> dict[str, Any]:
        """Return the example as JSON data."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Example:
        """Return the example of what `as_row` gave."""
        texts = {k: tuple(row[k]) for k in ("setup", "expected", "actual")}
        return cls(row["name"], row["call"], **texts, test=row["test"], sure=row["sure"])


def differences(before: Sequence[Mapping[str, Any]], after: Mapping[str, Any], test: int) -> list[Example]:
    """Return the examples of one failing test: its calls in the sound package, and its record (calls, failure) with the bug.

    The calls are compared in their order as long as they are the same; a call of `before` with the result None is not steady, and says nothing.
    """
    out: list[Example] = []
    for good, bad in zip(before, after.get("calls") or (), strict=False):
        if good["call"] != bad["call"] or good["setup"] != bad["setup"] or len(out) == _EACH:
            break
        if good["result"] is None or good["result"] == bad["result"] or not (good["clear"] and bad["clear"]):
            continue
        expected, actual = _result(good["result"]), _result(bad["result"])
        if expected != actual and not (expected[0] == actual[0] == "error" and expected[1] == actual[1]):
            out.append(Example(good["name"], good["call"], tuple(good["setup"]), expected, actual, test))
    return out or _asserted(after.get("failure") or {}, test)


def _result(result: Sequence[Any]) -> tuple[str, ...]:
    if result[0] == "items":
        return ("items", *result[1])
    return tuple(map(str, result))


def _asserted(failure: Mapping[str, Any], test: int) -> list[Example]:
    """Return what the failed assertion says, where it can be written without the test's own names."""
    said, compared = failure.get("statement") or {}, failure.get("compared")
    if not said.get("clear") or not said["calls"]:
        return []
    setup = tuple(said["setup"])
    if failure["type"] != "AssertionError":
        call = said[said["calls"][0]]
        return [Example("", call, setup, ("works",), ("error", failure["type"], failure["message"]), test)]
    if "test" in said:
        truth = ("true", "false") if said["truth"] else ("false", "true")
        return [Example("", said["test"], setup, (truth[0],), (truth[1],), test)]
    if "left" not in said or not compared or compared[0] != "==" or "…" in compared[1] + compared[2]:
        return []
    left, right = ("value", compared[1]), ("value", compared[2])
    if said["calls"] == ["right"]:
        return [Example("", said["right"], setup, left, right, test)]
    return [Example("", said["left"], setup, right, left, test, sure=said["calls"] == ["left"])]
