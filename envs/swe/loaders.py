"""Task sets of others: rows of SWE-bench, SWE-Gym, SWE-smith and R2E-Gym become `SweTask`s.

    load("verified.parquet")    load("hub:princeton-nlp/SWE-bench_Lite", split="test")    load("generated", split="train")

| source | fields of a row | image |
|---|---|---|
| SWE-bench | instance_id repo base_commit problem_statement patch test_patch FAIL_TO_PASS PASS_TO_PASS | swebench/sweb.eval.x86_64.<id> |
| SWE-Gym | the same | xingyaoww/sweb.eval.x86_64.<id> |
| SWE-smith | instance_id repo patch (CREATES the bug) FAIL_TO_PASS PASS_TO_PASS image_name problem_statement | jyangballin/<image_name> |
| R2E-Gym | docker_image repo_name commit_hash parsed_commit_content expected_output_json problem_statement | docker_image |
| agentgym | what SweTask.as_row gives | |

The image names' rules: in Docker names `__` is not allowed, so SWE-bench and SWE-smith write `_1776_` and SWE-Gym `_s_` (their harnesses' code,
read in 2026). A row's own `image_name` or `docker_image` goes before the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from agentgym.errors import DataError, did_you_mean
from agentgym.rows import parsed, rows, short

from . import diffs
from .packages import is_test
from .task import Base, Ids, Source, SweTask
from .taskset import SPLITS, is_built, shipped
from .taskset import tasks as built

# The repositories of SWE-bench, and of its Lite and Verified parts: what tells its rows from those of SWE-Gym, which have the same fields.
_SWEBENCH = frozenset(
    "astropy/astropy django/django matplotlib/matplotlib mwaskom/seaborn pallets/flask psf/requests pydata/xarray pylint-dev/pylint "
    "pytest-dev/pytest scikit-learn/scikit-learn sphinx-doc/sphinx sympy/sympy".split()
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m|\r")
_R2E_HIDDEN = ("r2e_tests", "run_tests.sh")


def load(
    name: str | Path, *, split: str | None = None, source: Source | None = None, limit: int | None = None, damaged: list[str] | None = None
) -> list[SweTask]:
    """Return the tasks of a file (.jsonl, .json, .parquet, also .gz), of `hub:owner/name[:config]`, or of "generated", the set that ships.

    A file of rows, or one that `agentgym tasks build swe` made.

    split    of a hub's set or of "generated": only these; of a file: rows that say another split are left out
    source   what the rows are; None: told by their fields
    limit    the first n
    damaged  None: a row that is no task raises DataError with file, row number and field. A list: such rows are left out, their messages put there
    """
    if source is not None and source not in get_args(Source):
        raise DataError(f"there is no source {source!r}.{did_you_mean(source, get_args(Source))} Sources: {', '.join(get_args(Source))}")
    if limit is not None and limit < 1:
        raise DataError(f"load({str(name)!r}, limit={limit}): expected at least 1, or None for all")
    if str(name) == "generated" or is_built(Path(name)):
        if split is not None and split not in SPLITS:
            raise DataError(f"the generated tasks have no split {split!r}.{did_you_mean(split, SPLITS)} Splits: {', '.join(SPLITS)}")
        made = shipped() if str(name) == "generated" else built(Path(name))
        return [t for t in made if split in (None, t.split)][:limit]
    out: list[SweTask] = []
    seen: dict[str, str] = {}
    for where, row, part in rows(name, split):
        try:
            task = read(row, where, source)
            if task.id in seen:
                raise DataError(f"{where}: the field 'instance_id' is {task.id!r}, as in {seen[task.id]}; expected one of its own")
        except DataError as e:
            if damaged is None:
                raise
            damaged.append(str(e))
            continue
        seen[task.id] = where
        if split is None or (task.split or part or split) == split:
            out.append(replace(task, split=task.split or part or split or ""))
        if len(out) == limit:
            break
    if not out and not damaged:
        raise DataError(f"{name} has no tasks{f' of split {split!r}' if split else ''}")
    return out


def read(row: Any, where: str, source: Source | None = None) -> SweTask:
    """Return the task of one row. Raises DataError: where, which field, what is there, what is allowed."""
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, Mapping):
        raise DataError(f"{where} is {short(row)}; expected an object with the fields of SWE-bench, SWE-Gym, SWE-smith or R2E-Gym")
    if "source" in row and "fail_to_pass" in row:
        try:
            return SweTask.from_row(row)
        except DataError as e:
            raise DataError(f"{where}: {e}") from e
    found = source or _source(row, where)
    field = _Fields(row, where)
    if found == "r2e-gym":
        return _r2e(field)
    return _smith(field) if found == "swe-smith" else _bench(field, found)


def _source(row: Mapping[str, Any], where: str) -> Source:
    """Return what a row is, by its fields."""
    if "expected_output_json" in row or "parsed_commit_content" in row:
        return "r2e-gym"
    repo, image = str(row.get("repo", "")), str(row.get("image_name") or row.get("docker_image") or "")
    if "swesmith" in image or repo.startswith("swesmith/"):
        return "swe-smith"
    if "instance_id" not in row or "repo" not in row:
        raise DataError(f"{where} has the fields {', '.join(map(str, row))}; expected those of SWE-bench, SWE-Gym, SWE-smith or R2E-Gym")
    if "xingyaoww" in image:
        return "swe-gym"
    return "swebench" if repo.lower() in _SWEBENCH or "swebench/" in image else "swe-gym"


class _Fields:
    """The fields of one row, each in its type, or an error that says where."""

    def __init__(self, row: Mapping[str, Any], where: str) -> None:
        self.row, self.where = row, where

    def text(self, name: str, empty: bool = False) -> str:
        value = self.row.get(name)
        if value is None and empty:
            return ""
        if not isinstance(value, str) or not (value.strip() or empty):
            raise DataError(f"{self.where}: the field {name!r} is {self._got(name)}; expected {'a text' if empty else 'a text that is not empty'}")
        return value

    def ids(self, name: str, some: bool) -> tuple[str, ...]:
        """Return a list of test ids, given as a list or as JSON text."""
        value = self.row.get(name)
        if isinstance(value, str):
            value = parsed(value, f"{self.where}: the field {name!r}", "a list of test ids, as JSON")
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value) or (some and not value):
            wanted = f"a list of {'one or more ' if some else ''}test ids, or such a list as JSON"
            raise DataError(f"{self.where}: the field {name!r} is {self._got(name)}; expected {wanted}")
        return tuple(dict.fromkeys(value))

    def diff(self, name: str) -> str:
        """Return a unified diff that can be read."""
        text = self.text(name)
        try:
            files = diffs.parse(text)
        except DataError as e:
            raise DataError(f"{self.where}: the field {name!r} is no diff: {e}") from e
        if not any(file.hunks or file.header for file in files):
            raise DataError(f"{self.where}: the field {name!r} changes nothing: {self._got(name)}; expected a unified diff")
        return text

    def object(self, name: str) -> dict[str, Any]:
        """Return an object, given as it is or as JSON text."""
        value = self.row.get(name)
        if isinstance(value, str):
            value = parsed(value, f"{self.where}: the field {name!r}", "an object, as JSON")
        if not isinstance(value, dict):
            raise DataError(f"{self.where}: the field {name!r} is {self._got(name)}; expected an object as JSON")
        return value

    def _got(self, name: str) -> str:
        return short(self.row[name]) if name in self.row else "not there"


def _image(field: _Fields, prefix: str, between: str) -> str:
    """Return the row's own image, or the name that the rule gives its id; with a tag, in small letters."""
    name = field.text("image_name", empty=True) or field.text("docker_image", empty=True)
    name = name or f"{prefix}{field.text('instance_id').replace('__', between)}"
    return (name if ":" in name.rpartition("/")[2] else f"{name}:latest").lower()


def _id_kind(ids: tuple[str, ...]) -> Ids:
    """Return "log" where some ids are no node ids of pytest: Django's and SymPy's are what their own runners print."""
    return "pytest" if all("::" in id for id in ids) else "log"


def _bench(field: _Fields, source: Source) -> SweTask:
    fail, keep, test_patch = field.ids("FAIL_TO_PASS", True), field.ids("PASS_TO_PASS", False), field.diff("test_patch")
    prefix, between = ("swebench/sweb.eval.x86_64.", "_1776_") if source == "swebench" else ("xingyaoww/sweb.eval.x86_64.", "_s_")
    return SweTask(
        field.text("instance_id"),
        source,
        field.text("repo"),
        Base(commit=field.text("base_commit"), version=field.text("version", empty=True)),
        field.text("problem_statement"),
        fail,
        keep,
        field.diff("patch"),
        test_patch=test_patch,
        hidden=tuple(sorted({file.path for file in diffs.parse(test_patch)})),
        image=_image(field, prefix, between),
        difficulty=field.text("difficulty", empty=True),
        split=field.text("split", empty=True),
        ids=_id_kind(fail + keep),
    )


def _smith(field: _Fields) -> SweTask:
    """Return the task of an SWE-smith row: its patch makes the bug, so the repair is the reverse. Its hidden tests are the files of FAIL_TO_PASS."""
    bug, fail, keep = field.diff("patch"), field.ids("FAIL_TO_PASS", True), field.ids("PASS_TO_PASS", False)
    owner, _, image = field.text("image_name").rpartition("/")
    image = f"{owner or 'jyangballin'}/{image.replace('__', '_1776_')}"
    return SweTask(
        field.text("instance_id"),
        "swe-smith",
        field.text("repo"),
        Base(commit=field.text("base_commit", empty=True), bug=bug),
        field.text("problem_statement"),
        fail,
        keep,
        diffs.reverse(bug),
        hidden=tuple(sorted({id.split("::")[0] for id in fail if "::" in id})),
        image=(image if ":" in image else f"{image}:latest").lower(),
        split=field.text("split", empty=True),
        ids=_id_kind(fail + keep),
    )


# --- R2E-Gym -------------------------------------------------------------------------------------------------------


def _r2e(field: _Fields) -> SweTask:
    """Return the task of an R2E-Gym row.

    Its reward compares the results of all tests with `expected_output_json`; here those that must pass are asked for. Which of them fail before the
    fix is in the log of the old commit (`execution_result_content`); without it, all that must pass count as FAIL_TO_PASS.
    """
    expected = {_test_name(name): status for name, status in field.object("expected_output_json").items()}
    good = [name for name, status in expected.items() if status == "PASSED" and name]
    if not good:
        raise DataError(f"{field.where}: the field 'expected_output_json' has no test with PASSED: {short(expected)}")
    runs = field.object("execution_result_content") if field.row.get("execution_result_content") else {}
    before = _statuses(str(runs.get("old_commit_res_stdout") or ""))
    keep = tuple(name for name in good if before.get(name) == "PASSED")
    if len(keep) == len(good):
        raise DataError(f"{field.where}: the field 'execution_result_content' says that all tests pass before the fix")
    image, repo = field.text("docker_image"), field.text("repo_name")
    commit = field.text("commit_hash", empty=True) or image.rpartition(":")[2]
    names, codes = runs.get("test_file_names") or [], runs.get("test_file_codes") or []
    files = {f"r2e_tests/{name.rpartition('/')[2]}": code for name, code in zip(names, codes, strict=False) if isinstance(code, str)}
    statement = field.text("problem_statement")
    issue = re.search(r"\[ISSUE\](.*)\[/ISSUE\]", statement, re.DOTALL)
    return SweTask(
        f"{repo}-{commit[:12]}",
        "r2e-gym",
        repo,
        Base(),  # the image stands at the commit before `commit`
        (issue[1] if issue else statement).strip(),
        tuple(name for name in good if name not in keep),
        keep,
        _gold(field),
        test_files=files,
        hidden=_R2E_HIDDEN,
        image=image,
        split=field.text("split", empty=True),
        ids="log",
    )


def _test_name(name: str) -> str:
    return _ANSI.sub("", name).split(" - ")[0]


def _statuses(log: str) -> dict[str, str]:
    """Return the results in the summary of a `pytest -rA` log: what follows the file in a node id, joined by dots → status."""
    _, mark, summary = _ANSI.sub("", log).partition("short test summary info")
    out = {}
    for line in summary.splitlines() if mark else ():
        status = next((s for s in ("PASSED", "FAILED", "ERROR") if line.startswith(s)), None)
        if status is not None:
            out[_test_name(".".join(line.split("::")[1:]))] = status
    return out


def _gold(field: _Fields) -> str:
    """Return the fix as a diff, from the contents of the commit's files before and after, without tests."""
    before, after = dict[str, str](), dict[str, str]()
    for path, old, new in _files(field):
        if not is_test(path):
            before |= {path: old} if old is not None else {}
            after |= {path: new} if new is not None else {}
    patch = diffs.unified(before, after)
    if not patch:
        raise DataError(f"{field.where}: the field 'parsed_commit_content' changes no file that is not a test")
    return patch


def _files(field: _Fields) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield path, text before, text after of each file of the commit."""
    for i, file in enumerate(field.object("parsed_commit_content").get("file_diffs") or []):
        try:
            header, old, new = file["header"], file["old_file_content"], file["new_file_content"]
            path, note = header["file"]["path"], header.get("misc_line") or ""
        except (KeyError, TypeError, AttributeError) as e:
            raise DataError(
                f"{field.where}: the field 'parsed_commit_content', file {i} of file_diffs has no {e}; expected header.file.path, "
                "old_file_content and new_file_content"
            ) from e
        if file.get("is_binary_file"):
            continue
        yield path, (None if note.startswith("new file") else old), (None if note.startswith("deleted file") else new)
