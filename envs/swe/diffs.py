"""Unified diffs as git writes them: make, read, reverse, and apply them without git and without guessing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from agentgym.errors import DataError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file\n"
_SWAPPED = {"new file mode": "deleted file mode", "rename from": "rename to", "copy from": "copy to", "old mode": "new mode"}
_SWAPPED |= {b: a for a, b in _SWAPPED.items()}


@dataclass(frozen=True)
class Hunk:
    """One place of a change: each line starts with ' ', '-' or '+'; one without an end of line ends its file."""

    old_start: int
    new_start: int
    lines: tuple[str, ...]
    tail: str = ""  # what follows the second @@


@dataclass(frozen=True)
class FileDiff:
    """The change of one file. `old` is None for a new file, `new` for a deleted one."""

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...] = ()
    header: tuple[str, ...] = field(default=())  # the lines between `diff --git` and `---`

    @property
    def path(self) -> str:
        """Return the file's path after the change, or before it where it is deleted."""
        return self.new or self.old or ""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends; only \\n ends a line, as for git."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def unified(before: Mapping[str, str], after: Mapping[str, str], context: int = 3) -> str:
    """Return the diff from `before` to `after` (path → text), sorted by path; '' where they are equal."""
    return "".join(_one(path, before.get(path), after.get(path), context) for path in sorted(before.keys() | after.keys()))


def _one(path: str, before: str | None, after: str | None, context: int) -> str:
    if before == after:
        return ""
    old, new = (f"a/{path}" if before is not None else "/dev/null"), (f"b/{path}" if after is not None else "/dev/null")
    made = "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
    body = list(difflib.unified_diff(lines_of(before or ""), lines_of(after or ""), n=context))[2:]
    text = "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in body)
    names = f"--- {old}\n+++ {new}\n" if body else ""
    return f"diff --git a/{path} b/{path}\n{made}{names}{text}"


def parse(diff: str) -> list[FileDiff]:
    """Return the files of a diff. Raises DataError where it is no unified diff, and for a binary change."""
    out: list[FileDiff] = []
    lines = lines_of(diff if diff.endswith("\n") or not diff else f"{diff}\n")
    at, named = 0, False  # named: the last file is known from its `diff --git` line only
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            out.append(_named(line))
            at, named = at + 1, True
        elif line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            old, new = _path(line), _path(lines[at + 1])
            out[-1:] = [replace(out[-1], old=old, new=new)] if named else [*out[-1:], FileDiff(old, new)]
            at, named = at + 2, False
        elif line.startswith("@@ "):
            if not out:
                raise DataError(f"line {at + 1} of a diff is {line[:80]!r}, but no file is named before it; expected '--- a/…' and '+++ b/…'")
            hunk, at = _hunk(lines, at)
            out[-1] = replace(out[-1], hunks=(*out[-1].hunks, hunk))
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise DataError(f"line {at + 1} of a diff is a binary change, {line[:80].strip()!r}; only text can be reversed and applied")
        else:
            if out and not out[-1].hunks and line.strip():
                out[-1] = _headed(out[-1], line)
            at += 1
    if diff.strip() and not out:
        raise DataError(f"expected a unified diff, got {diff[:120]!r}")
    return out


def _named(line: str) -> FileDiff:
    found = re.fullmatch(r'diff --git "?a/(.*?)"? "?b/(.*?)"?\n', line)
    return FileDiff(found[1], found[2]) if found else FileDiff("", "")


def _headed(file: FileDiff, line: str) -> FileDiff:
    """Return the file with one line of its header: a new file has no old name, a deleted one no new name."""
    if line.startswith("index "):  # hashes of contents that the reverse cannot know
        return file
    file = replace(file, header=(*file.header, line))
    if line.startswith("new file mode"):
        return replace(file, old=None)
    return replace(file, new=None) if line.startswith("deleted file mode") else file


def _path(line: str) -> str | None:
    name = line[4:].rstrip("\n").split("\t")[0].strip('"')
    return None if name == "/dev/null" else name[2:] if name.startswith(("a/", "b/")) else name


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    found = _HUNK.match(lines[at])
    if not found:
        raise DataError(f"line {at + 1} of a diff is {lines[at][:80]!r}; expected '@@ -start,count +start,count @@'")
    old_left, new_left = (int(found[i]) if found[i] is not None else 1 for i in (2, 4))
    tail, start, body = lines[at][found.end() :].rstrip("\n"), at, list[str]()
    at += 1
    while at < len(lines) and (old_left > 0 or new_left > 0 or lines[at].startswith("\\")):
        line = lines[at] if lines[at] != "\n" else " \n"  # some tools strip the blank of an empty line
        if line.startswith("\\"):
            body[-1] = body[-1].removesuffix("\n")
        elif line[0] in " +-":
            old_left, new_left = old_left - (line[0] != "+"), new_left - (line[0] != "-")
            body.append(line)
        else:
            break
        at += 1
    if old_left or new_left:
        raise DataError(f"the hunk at line {start + 1} of a diff, {lines[start].strip()!r}, has other lines than it says")
    return Hunk(int(found[1]), int(found[3]), tuple(body), tail), at


def render(files: Iterable[FileDiff]) -> str:
    """Return the text of a diff."""
    return "".join(line for file in files for line in _rendered(file))


def _rendered(file: FileDiff) -> Iterator[str]:
    old, new = file.old or file.new, file.new or file.old
    yield f"diff --git a/{old} b/{new}\n"
    yield from file.header
    if file.hunks:
        yield f"--- {'/dev/null' if file.old is None else f'a/{file.old}'}\n+++ {'/dev/null' if file.new is None else f'b/{file.new}'}\n"
    for hunk in file.hunks:
        counts = [sum(line[0] != sign for line in hunk.lines) for sign in "+-"]
        spans = [str(start) if n == 1 else f"{start},{n}" for start, n in zip((hunk.old_start, hunk.new_start), counts, strict=True)]
        yield f"@@ -{spans[0]} +{spans[1]} @@{hunk.tail}\n"
        yield from (line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in hunk.lines)


def reverse(diff: str) -> str:
    """Return the diff that undoes `diff`. Raises DataError where it is no unified diff."""
    return render(FileDiff(file.new, file.old, tuple(map(_reversed, file.hunks)), tuple(map(_reversed_header, file.header))) for file in parse(diff))


def _reversed(hunk: Hunk) -> Hunk:
    out: list[str] = []
    added: list[str] = []  # a run of changes shows what goes before what comes
    for line in hunk.lines:
        if line[0] == "-":
            added.append(f"+{line[1:]}")
        elif line[0] == "+":
            out.append(f"-{line[1:]}")
        else:
            out += [*added, line]
            added = []
    return Hunk(hunk.new_start, hunk.old_start, tuple(out + added), hunk.tail)


def _reversed_header(line: str) -> str:
    mark = next((mark for mark in _SWAPPED if line.startswith(mark)), None)
    return line if mark is None else _SWAPPED[mark] + line[len(mark) :]


def apply(diff: str, tree: Path) -> list[str]:
    """Change the files of `tree`; return their paths. Nothing is changed where a line is not as the diff says: DataError.

    Lines must stand where the hunks say; nothing is searched for. A path that leads out of the tree, also by a link, is an error.
    """
    done: dict[str, str | None] = {}
    for file in parse(diff):
        if file.old is None and inside(tree, file.path).exists():
            raise DataError(f"the diff makes {file.path}, which is there already in {tree}")
        after = patched("" if file.old is None else _read(tree, file.old), file)
        if file.old is not None and file.old != file.new:
            done[file.old] = None
        if file.new is not None:
            done[file.new] = after
    for path, text in done.items():
        place = inside(tree, path)
        if text is None:
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
    return sorted(done)


def patched(text: str, file: FileDiff) -> str:
    """Return a file's text after its hunks. Raises DataError where the text is not what the diff expects."""
    lines, out, at = lines_of(text), list[str](), 0
    for hunk in file.hunks:
        old = [line[1:] for line in hunk.lines if line[0] != "+"]
        start = hunk.old_start - 1 if old else hunk.old_start
        if start < at or lines[start : start + len(old)] != old:
            raise DataError(f"the diff of {file.path} does not fit at line {hunk.old_start}: expected {''.join(old)[:200]!r}")
        out += [*lines[at:start], *(line[1:] for line in hunk.lines if line[0] != "-")]
        at = start + len(old)
    return "".join(out + lines[at:])


def inside(tree: Path, path: str) -> Path:
    """Return the place of a relative path in a tree. Raises DataError where it would lie outside."""
    pure = PurePosixPath(path)
    place = tree / pure
    if not path or pure.is_absolute() or ".." in pure.parts or not place.resolve().is_relative_to(tree.resolve()):
        raise DataError(f"a diff names the file {path!r}, which is not inside the tree {tree}")
    return place


def _read(tree: Path, path: str) -> str:
    try:
        return inside(tree, path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the diff changes {path}, which cannot be read in {tree}: {e}") from e
