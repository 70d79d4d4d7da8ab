"""One repair task: where the repository comes from, what is wrong with it, and which tests decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from agentgym.errors import DataError, did_you_mean

Source = Literal["swebench", "swe-gym", "swe-smith", "r2e-gym", "generated"]
Ids = Literal["pytest", "log"]


@dataclass(frozen=True)
class Base:
    """How the repository at the start is made: a container image that has it at /testbed, or a package's sdist; then `bug` is applied.

    commit   the base commit inside the image ("" where the image stands at it already)
    package, version, sha256   of the sdist; see packages.py
    bug      unified diff that breaks it; "" where the fault is in the image already
    """

    commit: str = ""
    package: str = ""
    version: str = ""
    sha256: str = ""
    bug: str = ""


@dataclass(frozen=True)
class SweTask:
    """One task.

    repo          owner/name, or the package's name
    problem       the text that the agent gets
    fail_to_pass, pass_to_pass   ids of tests that must pass at the end; the former fail at the start
    ids           "pytest": node ids. "log": names as R2E-Gym's log parser gives them, what follows the file, joined by dots
    patch         unified diff that REPAIRS, without tests
    test_patch    unified diff that brings the hidden tests (SWE-bench, SWE-Gym), or ""
    test_files    path → text of hidden tests that are written at grading (R2E-Gym)
    hidden        paths below /testbed that the agent must not see before grading
    image         container image with the repository at /testbed; "" where `base` names a package
    difficulty    as the source says it; generated tasks: easy, medium, hard
    """

    id: str
    source: Source
    repo: str
    base: Base
    problem: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    patch: str
    test_patch: str = ""
    test_files: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    image: str = ""
    difficulty: str = ""
    split: str = ""
    ids: Ids = "pytest"

    def as_row(self) -> dict[str, Any]:
        """Return the task as JSON data."""
        return {**asdict(self), "test_files": dict(self.test_files)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> SweTask:
        """Return the task of what `as_row` gave. Raises DataError for a row that is none: which field, what is allowed."""
        known = {f.name: f for f in fields(cls)}
        for name in row:
            if name not in known:
                raise DataError(f"a task has no field {name!r}.{did_you_mean(name, known)} Fields: {', '.join(known)}")
        values = dict(row)
        for name, f in known.items():
            if name not in values:
                if name in _REQUIRED:
                    raise DataError(f"the task {row.get('id', '')!r} has no field {name!r}")
                continue
            values[name] = _checked(name, str(f.type), values[name], str(row.get("id", "")))
        return cls(**values)


_REQUIRED = ("id", "source", "repo", "base", "problem", "fail_to_pass", "pass_to_pass", "patch")


def _checked(name: str, kind: str, value: Any, task: str) -> Any:
    """Return a field's value in its own type."""
    where = f"the field {name!r} of the task {task!r}"
    if kind in ("Source", "Ids"):
        allowed = get_args(Source if kind == "Source" else Ids)
        if value not in allowed:
            raise DataError(f"{where} is {value!r}; allowed: {', '.join(allowed)}.{did_you_mean(str(value), allowed)}")
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "tuple[str, ...]" and isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return tuple(value)
    names = {f.name for f in fields(Base)}
    texts = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    if kind == "Base" and texts and value.keys() <= names:
        return Base(**value)
    if kind.startswith("Mapping") and texts:
        return dict(value)
    raise DataError(f"{where} is {repr(value)[:120]}; expected {_TYPES.get(kind, kind)}")


_TYPES = {
    "str": "a text",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str]": "an object of texts",
    "Base": f"an object with some of {', '.join(f.name for f in fields(Base))}, all of them texts",
}
