"""Rows of other task sets: hand-made ones of every format, the image names, and what is said about a row that is no task."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym.envs.swe import diffs
from agentgym.envs.swe.loaders import load
from agentgym.envs.swe.task import SweTask
from agentgym.errors import DataError

Write = Callable[..., Path]

FIX = """diff --git a/pkg/core.py b/pkg/core.py
--- a/pkg/core.py
+++ b/pkg/core.py
@@ -1,2 +1,2 @@
 def f(x):
-    return x
+    return x + 1
"""
TESTS = """diff --git a/tests/test_core.py b/tests/test_core.py
--- a/tests/test_core.py
+++ b/tests/test_core.py
@@ -1 +1,2 @@
 import pkg
+def test_f(): assert pkg.f(1) == 2
"""
BENCH = {
    "instance_id": "astropy__astropy-12907",
    "repo": "astropy/astropy",
    "base_commit": "d16bfe05a744909de4b27f5875fe0d4ed41ce607",
    "problem_statement": "f is off by one",
    "version": "4.3",
    "patch": FIX,
    "test_patch": TESTS,
    "FAIL_TO_PASS": '["tests/test_core.py::test_f"]',
    "PASS_TO_PASS": '["tests/test_core.py::test_g[a b]", "tests/test_core.py::test_h"]',
    "difficulty": "<15 min fix",
    "hints_text": "",
}
GYM = BENCH | {"instance_id": "getmoto__moto-7365", "repo": "getmoto/moto", "FAIL_TO_PASS": ["tests/test_core.py::test_f"], "PASS_TO_PASS": []}
SMITH = {
    "instance_id": "oauthlib__oauthlib.1fd52536.combine_file__09vlzwgc",
    "repo": "swesmith/oauthlib__oauthlib.1fd52536",
    "patch": diffs.reverse(FIX),
    "FAIL_TO_PASS": ["tests/test_core.py::test_f"],
    "PASS_TO_PASS": ["tests/test_core.py::test_g"],
    "image_name": "swesmith.x86_64.oauthlib__oauthlib.1fd52536",
    "problem_statement": "f is off by one",
}
OLD, NEW = "def f(x):\n    return x\n", "def f(x):\n    return x + 1\n"


def file_diff(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"header": {"file": {"path": path}, "misc_line": None} | more, "old_file_content": old, "new_file_content": new}


LOG = """collected 3
=== short test summary info ===
PASSED r2e_tests/test_1.py::TestF::test_g
FAILED r2e_tests/test_1.py::TestF::test_f - assert 1 == 2
"""
R2E = {
    "repo_name": "coveragepy",
    "docker_image": "namanjain12/coveragepy_final:016920289cd5d38f9386bc8901c3ab8dfe46cd93",
    "commit_hash": "016920289cd5d38f9386bc8901c3ab8dfe46cd93",
    "problem_statement": "Here it is:\n[ISSUE]\nf is off by one\n[/ISSUE]\n",
    "expected_output_json": json.dumps({"\x1b[1mTestF.test_f\x1b[0m": "PASSED", "TestF.test_g - note": "PASSED", "TestF.test_x": "FAILED"}),
    "parsed_commit_content": json.dumps(
        {
            "file_diffs": [
                file_diff("pkg/core.py", OLD, NEW),
                file_diff("pkg/new.py", "", "x = 1\n", misc_line="new file mode 100644"),
                file_diff("tests/test_core.py", "a\n", "b\n"),
            ]
        }
    ),
    "execution_result_content": json.dumps(
        {"old_commit_res_stdout": LOG, "test_file_names": ["test_1.py"], "test_file_codes": ["def test_f(): ..."]}
    ),
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a writer of rows into a file whose ending says the format."""

    def to(name: str, *rows: Any) -> Path:
        file = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(list(rows)), file)
            return file
        text = json.dumps(list(rows)) if ".json" in file.suffixes else "".join(json.dumps(row) + "\n" for row in rows)
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return file

    return to


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "a.jsonl.gz", "a.json.gz"])
def test_swebench_in_every_file_format(write: Write, name: str) -> None:
    (task,) = load(write(name, BENCH))
    assert task.source == "swebench" and task.id == "astropy__astropy-12907" and task.repo == "astropy/astropy"
    assert task.image == "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest"
    assert task.base.commit == BENCH["base_commit"] and task.base.bug == "" and task.problem == "f is off by one"
    assert task.fail_to_pass == ("tests/test_core.py::test_f",)
    assert task.pass_to_pass == ("tests/test_core.py::test_g[a b]", "tests/test_core.py::test_h")
    assert task.patch == FIX and task.test_patch == TESTS and task.hidden == ("tests/test_core.py",)
    assert task.difficulty == "<15 min fix" and task.ids == "pytest"


def test_swe_gym_has_other_images_and_lists(write: Write) -> None:
    (task,) = load(write("a.jsonl", GYM))
    assert task.source == "swe-gym" and task.image == "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7365:latest" and task.pass_to_pass == ()
    (task,) = load(write("b.jsonl", BENCH), source="swe-gym")
    assert task.image == "xingyaoww/sweb.eval.x86_64.astropy_s_astropy-12907:latest"
    (task,) = load(write("c.jsonl", GYM | {"image_name": "mine/sweb:v2"}))
    assert task.image == "mine/sweb:v2"


def test_ids_that_are_no_node_ids(write: Write) -> None:
    django = BENCH | {"repo": "django/django", "FAIL_TO_PASS": ["test_f (core.tests.CoreTests)"]}
    assert load(write("a.jsonl", django))[0].ids == "log"


def test_the_patch_of_swe_smith_makes_the_bug(write: Write, tmp_path: Path) -> None:
    (task,) = load(write("a.jsonl", SMITH))
    assert task.source == "swe-smith" and task.image == "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536:latest"
    assert task.base.bug == SMITH["patch"] and task.patch == FIX and task.hidden == ("tests/test_core.py",)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/core.py").write_text(NEW)
    diffs.apply(task.base.bug, tmp_path)
    assert (tmp_path / "pkg/core.py").read_text() == OLD
    diffs.apply(task.patch, tmp_path)
    assert (tmp_path / "pkg/core.py").read_text() == NEW
    whole = SMITH | {"image_name": "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536"}
    assert load(write("b.jsonl", whole))[0].image == task.image


def test_r2e_gym(write: Write) -> None:
    """What passes at the end and failed before; the fix without its tests, from the contents of files."""
    (task,) = load(write("a.parquet", R2E))
    assert task.source == "r2e-gym" and task.id == "coveragepy-016920289cd5" and task.image == R2E["docker_image"] and task.ids == "log"
    assert task.problem == "f is off by one"
    assert task.fail_to_pass == ("TestF.test_f",) and task.pass_to_pass == ("TestF.test_g",)
    files = diffs.parse(task.patch)
    assert [(f.old, f.new) for f in files] == [("pkg/core.py", "pkg/core.py"), (None, "pkg/new.py")]
    assert diffs.patched(OLD, files[0]) == NEW
    assert task.test_files == {"r2e_tests/test_1.py": "def test_f(): ..."} and task.hidden == ("r2e_tests", "run_tests.sh")
    without = {k: v for k, v in R2E.items() if k != "execution_result_content"}
    (task,) = load(write("b.jsonl", without))
    assert task.fail_to_pass == ("TestF.test_f", "TestF.test_g") and not task.pass_to_pass


@pytest.mark.parametrize("row", [BENCH, GYM, SMITH, R2E], ids=["swebench", "swe-gym", "swe-smith", "r2e-gym"])
def test_own_rows_come_back(write: Write, row: dict[str, Any]) -> None:
    (task,) = load(write("a.jsonl", row))
    assert SweTask.from_row(json.loads(json.dumps(task.as_row()))) == task
    assert load(write("b.jsonl", task.as_row())) == [task]


DAMAGED: list[tuple[dict[str, Any], str]] = [
    (BENCH | {"FAIL_TO_PASS": "[broken"}, r"the field 'FAIL_TO_PASS' is no JSON \(.*expected a list of test ids"),
    (BENCH | {"FAIL_TO_PASS": []}, r"the field 'FAIL_TO_PASS' is \[\]; expected a list of one or more test ids"),
    (BENCH | {"PASS_TO_PASS": {"a": 1}}, "the field 'PASS_TO_PASS' is {'a': 1}; expected a list of test ids"),
    (BENCH | {"problem_statement": " "}, "the field 'problem_statement' is ' '; expected a text that is not empty"),
    ({k: v for k, v in BENCH.items() if k != "base_commit"}, "the field 'base_commit' is not there"),
    (BENCH | {"patch": "fix it"}, "the field 'patch' is no diff: expected a unified diff"),
    (BENCH | {"test_patch": TESTS.replace("+1,2", "+1,3")}, "the field 'test_patch' is no diff: the hunk at line 4"),
    (BENCH | {"instance_id": 7}, "the field 'instance_id' is 7; expected a text"),
    (SMITH | {"image_name": None}, "the field 'image_name' is None; expected a text that is not empty"),
    (SMITH | {"patch": ""}, "the field 'patch' is ''; expected a text that is not empty"),
    (R2E | {"expected_output_json": "{"}, "the field 'expected_output_json' is no JSON"),
    (R2E | {"expected_output_json": '{"a": "FAILED"}'}, "the field 'expected_output_json' has no test with PASSED"),
    (
        R2E | {"parsed_commit_content": '{"file_diffs": [{"header": {}}]}'},
        "the field 'parsed_commit_content', file 0 of file_diffs has no 'old_file_content'",
    ),
    (R2E | {"parsed_commit_content": "{}"}, "the field 'parsed_commit_content' changes no file that is not a test"),
    (
        R2E | {"execution_result_content": json.dumps({"old_commit_res_stdout": LOG.replace("FAILED", "PASSED")})},
        "says that all tests pass before the fix",
    ),
    ({"question": "who?"}, "has the fields question; expected those of SWE-bench, SWE-Gym, SWE-smith or R2E-Gym"),
    ({"source": "swebenhc", "fail_to_pass": [], "id": "x"}, "allowed: swebench, swe-gym, .*Did you mean 'swebench'"),
    ({"source": "generated", "fail_to_pass": [], "id": "x"}, "the task 'x' has no field 'repo'"),
]


@pytest.mark.parametrize(("row", "said"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_row_is_named(write: Write, row: dict[str, Any], said: str) -> None:
    """By file, row and field; with a list for them the others are loaded."""
    file = write("some.jsonl", BENCH, row, GYM)
    with pytest.raises(DataError, match=rf"some\.jsonl, row 2.*{said}") as e:
        load(file)
    damaged: list[str] = []
    assert [t.id for t in load(file, damaged=damaged)] == [BENCH["instance_id"], GYM["instance_id"]]
    assert damaged == [str(e.value)]


def test_what_is_no_file_of_rows(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*none.jsonl"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match=r"cannot tell the format of .*a.jsonn.*Did you mean"):
        load(tmp_path / "a.jsonn")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="as parquet"):
        load(tmp_path / "b.parquet")
    (tmp_path / "c.jsonl").write_text('{"a": 1}\n{"b"\n')
    with pytest.raises(DataError, match=r"c\.jsonl, row 1 has the fields a"):
        load(tmp_path / "c.jsonl")
    damaged: list[str] = []
    assert load(tmp_path / "c.jsonl", damaged=damaged) == [] and len(damaged) == 2 and "c.jsonl, row 2 is no JSON" in damaged[1]
    (tmp_path / "d.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match="expected a list of JSON objects"):
        load(tmp_path / "d.json")
    (tmp_path / "e.jsonl").write_text("")
    with pytest.raises(DataError, match="has no tasks"):
        load(tmp_path / "e.jsonl")
    with pytest.raises(DataError, match="row 1 is 5; expected an object"):
        load(write("f.jsonl", 5))
    with pytest.raises(DataError, match=r"is 'astropy__astropy-12907', as in .*g\.jsonl, row 1"):
        load(write("g.jsonl", BENCH, BENCH))
    with pytest.raises(DataError, match=r"there is no source 'swegym'\. Did you mean 'swe-gym'"):
        load(write("h.jsonl", BENCH), source="swegym")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="limit=0"):
        load(write("h.jsonl", BENCH), limit=0)


def test_splits_and_limits(write: Write) -> None:
    other = BENCH | {"instance_id": "astropy__astropy-2", "split": "dev"}
    file = write("a.jsonl", BENCH, other)
    assert [(t.id, t.split) for t in load(file)] == [("astropy__astropy-12907", ""), ("astropy__astropy-2", "dev")]
    assert [(t.id, t.split) for t in load(file, split="test")] == [("astropy__astropy-12907", "test")]
    assert [t.id for t in load(file, split="dev", limit=1)] == ["astropy__astropy-12907"]


def test_a_set_from_the_hub(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own loader, given files instead of a network."""
    import datasets

    file, real = str(write("a.jsonl", BENCH, BENCH | {"instance_id": "astropy__astropy-2"})), datasets.load_dataset

    def local(repo: str, config: str | None, *, split: str | None) -> Any:
        assert (repo, config) == ("owner/name", None)
        return real("json", data_files={"test": file}, split=split)

    monkeypatch.setattr(datasets, "load_dataset", local)
    assert [(t.id, t.split) for t in load("hub:owner/name")] == [("astropy__astropy-12907", "test"), ("astropy__astropy-2", "test")]
    assert len(load("hub:owner/name", split="test", limit=1)) == 1
    with pytest.raises(DataError, match=re.escape("cannot load owner/name, split 'train' from the hub")):
        load("hub:owner/name", split="train")
    with pytest.raises(DataError, match="names no data set"):
        load("hub:name")
