"""Scripted players: the oracle, which knows the fix and makes it with the agent's own tools, and who does nothing."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import diffs

if TYPE_CHECKING:
    from .env import SWEEnv

Moves = Generator[tuple[str, dict[str, Any]], str, None]
_SHOWN = 12  # lines around a place that the oracle looks at first


def solve(env: SWEEnv) -> Moves:
    """Make the task's own fix: look at each place, replace it, submit. Where only bash can be called, the fix is a patch."""
    if marker := getattr(env._form, "submits", None):
        yield "bash", {"command": _patch(env.swe.patch, env.root)}
        yield "bash", {"command": f"echo {marker}"}
        return
    for file in diffs.parse(env.swe.patch):
        yield from _file(file, env.root)
    yield "submit", {}


def idle(env: SWEEnv) -> Moves:
    """Submit at once."""
    marker = getattr(env._form, "submits", None)
    yield ("bash", {"command": f"echo {marker}"}) if marker else ("submit", {})


def _file(file: diffs.FileDiff, root: str) -> Moves:
    """Change one file, from its end to its start: line numbers above stay what the diff says."""
    if file.old is None or file.new is None or file.old != file.new or not file.hunks:
        yield "bash", {"command": _patch(diffs.render([file]), root)}
        return
    for hunk in reversed(file.hunks):
        old = [line[1:] for line in hunk.lines if line[0] != "+"]
        new = [line[1:] for line in hunk.lines if line[0] != "-"]
        yield "edit", {"command": "view", "path": file.path, "view_range": [max(1, hunk.old_start - _SHOWN), hunk.old_start + len(old) + _SHOWN]}
        said = yield "edit", {"command": "str_replace", "path": file.path, "old_str": "".join(old), "new_str": "".join(new)}
        if "is changed" not in said:  # the same lines stand elsewhere too
            yield "bash", {"command": _patch(diffs.render([diffs.FileDiff(file.old, file.new, (hunk,))]), root)}


def _patch(diff: str, root: str) -> str:
    """Return the command that applies a diff."""
    end = "END_OF_PATCH"
    while end in diff:
        end += "_"
    return f"cd {shlex.quote(root)} && git apply --whitespace=nowarn - <<'{end}'\n{diff}{end}"
