"""The edit tool: view, create, str_replace, insert and undo, with errors that tell the model how to repair its call."""

from __future__ import annotations

import difflib
import errno
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from agentgym.toolcall import CallError

from .sandbox import TREE, Sandbox

Edit = Literal["view", "create", "str_replace", "insert", "undo"]
MAX_FILE = 2 << 20
_AROUND = 4  # lines that are shown before and after a change
_NEAR = 3  # places that are shown where a text is not found
_UNDO = 50


class Editor:
    """Edits the files of one sandbox's work tree. Raises CallError with what the model has to mend, EnvError where the sandbox fails.

    show  characters that one answer may have
    """

    def __init__(self, box: Sandbox, show: int) -> None:
        self._box, self._show = box, show
        self._before: dict[str, list[bytes | None]] = {}  # path → contents before each change, None where there was no file

    def view(self, path: str, view_range: Sequence[int] | None) -> str:
        """Return a file with line numbers, or the names in a folder."""
        place = self._place(path)
        try:
            text = self._text(place)
        except IsADirectoryError:
            if view_range is not None:
                raise CallError(f"{place} is a folder; view_range is for files. Leave it out.") from None
            return self._folder(place)
        lines = text.splitlines()
        first, last = self._range(place, view_range, len(lines))
        shown = _numbered(lines[first - 1 : last], first)
        if len(shown) > self._show:
            fits = shown[: self._show].count("\n")
            raise CallError(
                f"{place} lines {first} to {last} are {len(shown):,} characters, more than the {self._show:,} that can be shown. "
                f"View a part, such as view_range=[{first}, {first + max(1, fits) - 1}]; the file has {len(lines)} lines."
            )
        what = f"{place} ({len(lines)} lines)" if view_range is None else f"{place}, lines {first} to {last} of {len(lines)}"
        return f"{what}\n{shown}" if lines else f"{place} is empty"

    def create(self, path: str, file_text: str) -> str:
        """Write a new file."""
        place = self._place(path)
        if self._there(place):
            remove = f"rm {shlex.quote(place)}"
            raise CallError(f"{place} is there already. Change it with str_replace or insert, or remove it first: bash with `{remove}`.")
        self._write(place, file_text, None)
        return f"{place} is written ({len(file_text.splitlines())} lines)."

    def replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that stands in the file exactly once."""
        place = self._place(path)
        text = self._file(place)
        if not old_str:
            raise CallError("old_str is empty: give the text that is to be replaced, or use insert to add lines.")
        if old_str == new_str:
            raise CallError("old_str and new_str are the same: nothing would change.")
        if old_str not in text and "\r\n" in text and "\r\n" not in old_str:
            old_str, new_str = old_str.replace("\n", "\r\n"), new_str.replace("\r\n", "\n").replace("\n", "\r\n")
        starts = _places(text, old_str)
        if not starts:
            raise CallError(_not_found(place, text, old_str))
        if len(starts) > 1:
            lines = [text.count("\n", 0, at) + 1 for at in starts]
            shown = ", ".join(map(str, lines[:20])) + (" …" if len(lines) > 20 else "")
            what = f"old_str stands {len(starts)} times in {place}, at lines {shown}"
            raise CallError(f"{what}. Add lines around it to old_str (and to new_str) until it is the only one.")
        at = starts[0]
        after = text[:at] + new_str + text[at + len(old_str) :]
        self._write(place, after, text)
        line = text.count("\n", 0, at) + 1
        return f"{place} is changed:\n{_snippet(after, line, line + max(0, len(new_str.splitlines()) - 1))}"

    def insert(self, path: str, insert_line: int, new_str: str) -> str:
        """Insert lines after a line; after line 0 is before the first one."""
        place = self._place(path)
        text = self._file(place)
        lines = text.splitlines(keepends=True)
        if not 0 <= insert_line <= len(lines):
            right = f"give 0 (before the first line) to {len(lines)} (after the last)"
            raise CallError(f"insert_line is {insert_line}, but {place} has {len(lines)} lines: {right}.")
        end = "\r\n" if "\r\n" in text else "\n"
        new = [f"{line}{end}" for line in new_str.splitlines()] or [end]
        if insert_line and not lines[insert_line - 1].endswith("\n"):
            lines[insert_line - 1] += end
        after = "".join([*lines[:insert_line], *new, *lines[insert_line:]])
        self._write(place, after, text)
        return f"{len(new)} lines are inserted in {place}:\n{_snippet(after, insert_line + 1, insert_line + len(new))}"

    def undo(self, path: str) -> str:
        """Take back the last change that this tool made to a file."""
        place = self._place(path)
        if not self._before.get(place):
            known = ", ".join(p for p, b in self._before.items() if b) or "none"
            raise CallError(f"there is no change of {place} to undo. Files with changes by this tool: {known}. For others, use bash with git.")
        before = self._before[place].pop()
        if before is None:
            done = self._box.run(f"rm -f -- {shlex.quote(place)}")
            if done.code != 0:
                raise CallError(f"{place} cannot be removed: {done.output.strip()[-200:]}")
            return f"The last change is taken back: {place} is removed again."
        self._put(place, before)
        return f"The last change of {place} is taken back; it has {len(before.splitlines())} lines."

    # --- inside

    def _place(self, path: str) -> str:
        """Return the absolute path that is meant."""
        if not path.strip() or "\0" in path:
            raise CallError(f"path is {path!r}: give a file below {TREE}, such as {TREE}/setup.py.")
        parts: list[str] = []
        for part in PurePosixPath(TREE, path).parts[1:]:
            if part == "..":
                parts = parts[:-1]
            else:
                parts.append(part)
        place = "/" + "/".join(parts)
        if place != TREE and not place.startswith(f"{TREE}/"):
            raise CallError(f"{path} is outside of the repository: this tool edits files below {TREE}. A path may be relative to it.")
        return place

    def _text(self, place: str) -> str:
        """Return a text file. Raises IsADirectoryError for a folder."""
        try:
            data = self._box.read(place, MAX_FILE + 1)
        except IsADirectoryError:
            raise
        except FileNotFoundError:
            raise CallError(f"{place} is not there.{self._alike(place)}") from None
        except OSError as e:
            raise CallError(f"{place} cannot be read: {e.strerror}.") from None
        if len(data) > MAX_FILE:
            raise CallError(f"{place} has more than {MAX_FILE >> 20} MB, too much for this tool; use bash (sed -n, grep).")
        try:
            if b"\0" not in data:
                return data.decode()
        except UnicodeDecodeError:
            pass
        raise CallError(f"{place} is a binary file, or not UTF-8; this tool edits text. Use bash.")

    def _file(self, place: str) -> str:
        try:
            return self._text(place)
        except IsADirectoryError:
            raise CallError(f"{place} is a folder; give a file. The command view lists what is in it.") from None

    def _there(self, place: str) -> bool:
        try:
            self._box.read(place, 1)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise CallError(f"{place} cannot be made: a part of its path is a file.") from None
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                raise CallError(f"the path cannot be made: {e.strerror} ({len(place)} characters).") from None
            return True
        return True

    def _write(self, place: str, text: str, before: str | None) -> None:
        try:
            data = text.encode()
        except UnicodeEncodeError as e:
            raise CallError(f"the text has half a character (a lone surrogate) at position {e.start}.") from None
        if len(data) > MAX_FILE:
            raise CallError(f"the file would have more than {MAX_FILE >> 20} MB, too much for this tool.")
        self._put(place, data)
        past = self._before.setdefault(place, [])
        past.append(before.encode() if before is not None else None)
        del past[:-_UNDO]

    def _put(self, place: str, data: bytes) -> None:
        try:
            self._box.write(place, data)
        except OSError as e:
            raise CallError(f"{place} cannot be written: {e.strerror}.") from None

    def _range(self, place: str, wanted: Sequence[int] | None, count: int) -> tuple[int, int]:
        """Return the first and the last line that are asked for; -1 is the end."""
        if wanted is None:
            return 1, count
        right = f"Give two line numbers [first, last] within 1 to {count}; last may be -1 for the end."
        if len(wanted) != 2:
            raise CallError(f"view_range has {len(wanted)} numbers. {right}")
        first, last = wanted
        if last == -1:
            last = count
        if not 1 <= first <= max(1, count):
            raise CallError(f"view_range begins at {first}, but {place} has {count} lines. {right}")
        if last < first:
            raise CallError(f"view_range [{first}, {last}] ends before it begins. {right}")
        return first, min(last, count)

    def _folder(self, place: str) -> str:
        """Return the names in a folder, two levels deep, without hidden ones."""
        kept = "-not -path '*/.*' -not -name __pycache__ -not -path '*/__pycache__/*'"
        done = self._box.run(f"cd {shlex.quote(place)} && find . -mindepth 1 -maxdepth 2 {kept} -printf '%P%y\\n'")
        if done.code != 0:
            raise CallError(f"{place} cannot be listed: {done.output.strip()[-200:]}")
        names = sorted(line[:-1] + ("/" if line.endswith("d") else "") for line in done.output.splitlines() if line)
        shown = "\n".join(names) or "(nothing but hidden files)"
        return f"{place}, two levels deep, without hidden files:\n{shown[: self._show]}" + ("\n…" if len(shown) > self._show else "")

    def _alike(self, place: str) -> str:
        """Return what else might have been meant."""
        name = PurePosixPath(place).name
        done = self._box.run(f"find {TREE} -type f -not -path '*/.git/*' -not -name '*.pyc' -printf '%P\\n' | head -n 5000", output=400_000)
        files = done.output.splitlines() if done.code == 0 else []
        same = [f for f in files if f.rpartition("/")[2] == name]
        close = same or difflib.get_close_matches(place[len(TREE) + 1 :], files, n=3, cutoff=0.6)
        return f" Did you mean {', '.join(f'{TREE}/{f}' for f in close[:3])}?" if close else f" View {TREE} to see what is."


def _numbered(lines: Sequence[str], first: int) -> str:
    width = len(str(first + len(lines)))
    return "\n".join(f"{first + i:>{width}}\t{line}" for i, line in enumerate(lines))


def _snippet(text: str, first: int, last: int) -> str:
    """Return the lines of a change with some around it; the middle of a long one is left out."""
    lines = text.splitlines()
    start, end = max(1, first - _AROUND), min(len(lines), last + _AROUND)
    if end - start > 60:
        return _numbered(lines[start - 1 : start + 29], start) + "\n…\n" + _numbered(lines[end - 30 : end], end - 29)
    return _numbered(lines[start - 1 : end], start)


def _places(text: str, part: str) -> list[int]:
    out, at = [], text.find(part)
    while at >= 0:
        out.append(at)
        at = text.find(part, at + 1)
    return out


def _not_found(place: str, text: str, old: str) -> str:
    """Return the feedback on a text that does not stand in the file: where it stands with other blanks, or what is most like it."""
    lines, wanted = text.splitlines(), old.splitlines() or [old]
    while len(wanted) > 1 and not wanted[0].strip():
        wanted = wanted[1:]
    n = len(wanted)
    plain, plain_lines = [w.split() for w in wanted], [line.split() for line in lines]
    same = [i for i in range(len(lines) - n + 1) if plain_lines[i : i + n] == plain]
    if same:
        i = same[0]
        exact = _numbered(lines[i : i + n], i + 1)
        return f"old_str is not in {place} as it is written: blanks or tabs differ. Lines {i + 1} to {i + n} are, exactly:\n{exact}"
    matcher = difflib.SequenceMatcher(autojunk=False)
    anchor = max(wanted, key=lambda w: len(w.strip()))  # the line that says most
    matcher.set_seq2(anchor.strip())
    scores = []
    for i, line in enumerate(lines[:20_000]):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5:
            scores.append((matcher.ratio(), -i))
    best = sorted((s for s in scores if s[0] > 0.5), reverse=True)[:_NEAR]
    if not best:
        return f"old_str is not in {place}, and nothing like it. View the file and copy the text exactly, without line numbers."
    offset = wanted.index(anchor)
    shown = []
    for _, i in best:
        start = max(0, -i - offset)
        shown.append(_numbered(lines[start : start + min(n, 12)], start + 1))
    return (
        f"old_str is not in {place}. Most like it:\n" + "\n--\n".join(shown) + "\nCopy the text exactly, with its blanks, without the line numbers."
    )


def needs(command: Edit, **given: object) -> None:
    """Refuse a call that lacks an argument of its command, or has one of another. Raises CallError."""
    uses = {"view": (), "create": ("file_text",), "str_replace": ("old_str", "new_str"), "insert": ("insert_line", "new_str"), "undo": ()}[command]
    allowed = (*uses, "view_range") if command == "view" else uses
    lacking = [name for name in uses if given.get(name) is None and not (command == "str_replace" and name == "new_str")]
    over = [name for name, value in given.items() if value is not None and name not in allowed]
    if not lacking and not over:
        return
    right = {"view": "path, and view_range where only a part is wanted", "undo": "path alone"}.get(command, f"path, {', '.join(uses)}")
    what = f"lacks {', '.join(lacking)}" if lacking else f"does not take {', '.join(over)}"
    raise CallError(f"edit with command={command!r} {what}. It takes {right}.")
