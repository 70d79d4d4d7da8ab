"""The set of generated tasks that ships: pinned, large, mixed, sound, and split by package."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from agentgym.envs.swe import diffs, mutate, packages, taskset
from agentgym.envs.swe.build import difficulty
from agentgym.envs.swe.loaders import load
from agentgym.envs.swe.packages import PACKAGES
from agentgym.errors import DataError

LINES = taskset.lines(taskset.FILE)
HEADS = {line["package"]: line for line in LINES if "id" not in line}
ROWS = [line for line in LINES if "id" in line]
SHA256 = "817bfd80a4934f79dfa0e90508ce2733319dce5a733eb303e6bfe55176a7255a"


def test_the_shipped_set_is_pinned() -> None:
    """Another set is another benchmark: it needs another hash here and in taskset.py."""
    assert hashlib.sha256(gzip.decompress(taskset.FILE.read_bytes())).hexdigest() == SHA256 == taskset.SHA256
    assert taskset.FILE.stat().st_size < 1_500_000


def test_the_shipped_set_is_large_and_mixed() -> None:
    assert len(ROWS) >= 300 and len(HEADS) >= 8
    levels, operators = Counter(r["difficulty"] for r in ROWS), Counter(name for r in ROWS for name in r["bugs"])
    assert all(levels[level] >= 40 for level in ("easy", "medium", "hard")) and len(operators) >= 25
    assert max(operators.values()) < len(ROWS) / 8
    assert sum(len(r["bugs"]) == 2 for r in ROWS) >= 30 and {len(r["bugs"]) for r in ROWS} == {1, 2}


def test_shipped_splits_are_disjoint_by_package() -> None:
    by = {split: {t.repo for t in load("generated", split=split)} for split in taskset.SPLITS}
    assert not by["train"] & by["test"] and len(by["test"]) >= 2 and len(by["train"]) >= 6
    assert len(load("generated")) == len(ROWS) == len(load("generated", split="train")) + len(load("generated", split="test"))
    assert len(load("generated", split="test")) >= 80 and len(load("generated", limit=7)) == 7
    with pytest.raises(DataError, match=r"no split 'tset'\. Did you mean 'test'"):
        load("generated", split="tset")


def test_shipped_tasks_are_sound() -> None:
    """One or two small repairs of the package's own files; some tests fail, at most a third; the ids are those of the package."""
    assert len({r["id"] for r in ROWS}) == len(ROWS)
    for task, row in zip(load("generated"), ROWS, strict=True):
        package, tests = PACKAGES[task.repo], HEADS[task.repo]["tests"]
        assert task.base.sha256 == package.sha256 and task.base.version == package.version and task.split == package.split
        assert 1 <= len(task.fail_to_pass) <= max(1, len(tests) // 3)
        assert not set(task.fail_to_pass) & set(task.pass_to_pass) and set(task.fail_to_pass) | set(task.pass_to_pass) == set(tests)
        files = diffs.parse(task.patch)
        changed = sum(line[0] in "+-" for f in files for h in f.hunks for line in h.lines)
        assert 1 <= len(files) <= len(row["bugs"]) and 1 <= changed <= mutate.LONGEST * len(row["bugs"])
        for file in files:
            assert file.old == file.new and not packages.is_test(file.path) and file.path.startswith(package.sources)
        assert diffs.reverse(task.base.bug) == task.patch
        assert set(task.hidden) >= {id.split("::")[0] for id in task.fail_to_pass} and all(map(packages.is_test, task.hidden))
        assert task.difficulty == difficulty(len(task.fail_to_pass), len(row["bugs"])) and set(row["bugs"]) <= set(mutate.operators())


def test_tests_that_are_inherited_are_hidden_too() -> None:
    """Where files of tests share tests, none of them is left for the agent: they would break, or show what is hidden."""
    own = next(t for t in load("generated") if t.repo == "inflection")
    assert own.hidden == ("test_inflection.py",)
    for repo, base in (("cachetools", "tests/__init__.py"), ("rfc3986", "tests/base.py")):
        for task in (t for t in load("generated") if t.repo == repo):
            assert base in task.hidden and {id.split("::")[0] for id in task.pass_to_pass} < set(task.hidden)


def test_a_damaged_set_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl.gz"
    file.write_bytes(taskset.FILE.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot read the task set"):
        taskset.tasks(file)
    sha256 = taskset.write(file, LINES[:3])
    with pytest.raises(DataError, match=re.escape(f"has SHA-256 {sha256}, expected {taskset.SHA256}")):
        taskset.tasks(file, taskset.SHA256)
    taskset.write(file, [HEADS["first"] | {"version": "9.9", "sha256": "0" * 64}])
    with pytest.raises(DataError, match=r"is of first 9\.9, which packages\.py does not pin"):
        taskset.tasks(file)
