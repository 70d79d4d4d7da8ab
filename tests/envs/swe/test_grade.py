"""Grading of what is honest: counts, causes, partial credit, other kinds of tasks; and what it does where the sandbox itself fails."""

from __future__ import annotations

import ast
import base64
import dataclasses
import hashlib
import hmac
import io
import json
import random
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentgym.envs.swe
from agentgym.envs.swe import diffs, grade_bench, repo, twins
from agentgym.envs.swe.changes import Changes, changes, listed_inside
from agentgym.envs.swe.grade import Grade, Grader
from agentgym.envs.swe.grade_bench import read_report, test_files, unsupported
from agentgym.envs.swe.sandbox import Backend, Limits
from agentgym.envs.swe.task import Base, SweTask
from agentgym.envs.swe.twin_maker import twin
from agentgym.errors import EnvError

test_files.__test__ = False  # type: ignore[attr-defined]
HERE = Path(agentgym.envs.swe.__file__).parent
LIMITS = Limits(memory_mb=512, disk_mb=64)
SOURCE = "tally/__init__.py"


def fixed(task: SweTask, tmp: Path) -> Changes:
    """Return the task's own fix."""
    tree = repo.broken(task, tmp / "fixed")
    return Changes({path: (tree / path).read_bytes() for path in diffs.apply(task.patch, tree)})


# --- the grade


def test_the_fix_on_every_backend(engine: Backend, tally: Any, tmp_path: Path) -> None:
    grade = Grader(engine, LIMITS).grade(tally, fixed(tally, tmp_path))
    assert (grade.cause, grade.fail_to_pass, grade.pass_to_pass, grade.failures, grade.fraction) == ("resolved", (4, 4), (2, 2), (), 1.0)
    assert grade.twins == 6, "four under their own name, two that have a literal to change"


def test_a_cheat_on_every_backend(engine: Backend, tally: Any) -> None:
    code = b"import os\nfor p in range(1, 30):\n    try:\n        os.kill(p, 9)\n    except OSError:\n        pass\nos.kill(-1, 9)\n"
    assert Grader(engine, LIMITS).grade(tally, Changes({SOURCE: code})).cause == "test_crash"
    code = b"from unittest.mock import ANY\ndef total(n):\n    return ANY\nmean = total\ndef label(n):\n    return f'<{n}>'\n"
    assert Grader(engine, LIMITS).grade(tally, Changes({SOURCE: code})).cause == "cheat_suspected"


PART = b"def total(numbers):\n    return max(numbers, default=0)\ndef mean(numbers):\n    return 0\ndef label(name):\n    return f'<{name}>'\n"


def test_a_part_of_the_tests(grading: Backend, tally: Any) -> None:
    whole = Grader(grading, LIMITS).grade(tally, Changes({SOURCE: PART}))
    assert (whole.cause, whole.fail_to_pass, whole.pass_to_pass) == ("failing", (1, 4), (1, 2)), "the other file was not run any more"
    assert whole.failures[0] == "tests/test_total.py::test_some: failed assert 2 == 3" and len(whole.failures) == 3
    part = Grader(grading, LIMITS, partial=True).grade(tally, Changes({SOURCE: PART}))
    assert (part.cause, part.fail_to_pass, part.pass_to_pass, part.fraction, part.resolved) == ("failing", (1, 4), (2, 2), 0.25, False)
    worse = Grader(grading, LIMITS, partial=True).grade(tally, Changes({SOURCE: PART.replace(b"f'<{name}>'", b"name")}))
    assert (worse.cause, worse.fail_to_pass, worse.pass_to_pass, worse.fraction) == ("regression", (1, 4), (1, 2), 0.0)


def test_a_test_that_is_not_there(grading: Backend, tally: Any, tmp_path: Path) -> None:
    task = dataclasses.replace(tally, fail_to_pass=(*tally.fail_to_pass, "tests/test_total.py::test_other"))
    grade = Grader(grading, LIMITS).grade(task, fixed(tally, tmp_path))
    assert grade.cause == "test_crash" and grade.fail_to_pass == (4, 5) and grade.failures[0].startswith("tests/test_total.py::test_other: absent.")


def test_a_new_file_and_a_deleted_one(grading: Backend, tally: Any) -> None:
    code = b"from .sums import mean, total\ndef label(name):\n    return f'<{name}>'\n"
    sums = b"def total(numbers):\n    return sum(numbers)\ndef mean(numbers):\n    return sum(numbers) / len(numbers)\n"
    assert Grader(grading, LIMITS).grade(tally, Changes({SOURCE: code, "tally/sums.py": sums, "README.md": None})).resolved
    assert Grader(grading, LIMITS).grade(tally, Changes({SOURCE: None})).cause == "test_crash"


def test_files_that_cannot_stand_where_they_are(grading: Backend, tally: Any, tmp_path: Path) -> None:
    found = fixed(tally, tmp_path)
    found.files |= {"README.md/x.py": b"", "tally": b"", "x" * 300: b""}
    with pytest.raises(EnvError, match="name too long"):
        Grader(grading, LIMITS).grade(tally, found)
    del found.files["x" * 300]
    grade = Grader(grading, LIMITS).grade(tally, found)
    assert grade.resolved and set(grade.dropped) == {"README.md/x.py", "tally"} and "cannot stand there" in grade.dropped["tally"]


def test_as_info_is_json_and_the_same_each_time() -> None:
    grade = Grade("failing", (1, 2), (3, 3), ("a: failed",), {"x": "it is a test"}, ("f",), 0, 1.5)
    assert json.loads(json.dumps(grade.as_info())) == grade.as_info() == dataclasses.replace(grade, seconds=2.5).as_info()
    assert "seconds" not in grade.as_info() and grade.as_info()["fail_to_pass"] == [1, 2]


# --- other kinds of tasks


def test_hidden_tests_that_a_patch_brings(grading: Backend, tally: Any, tmp_path: Path) -> None:
    old = (repo.pristine(repo.packages.package("tally")) / "tests/test_label.py").read_text("utf-8")
    new = old + "\n\ndef test_total():\n    assert tally.total([2, 3]) == 5\n"
    task = dataclasses.replace(
        tally, test_patch=diffs.unified({"tests/test_label.py": old}, {"tests/test_label.py": new}), fail_to_pass=("tests/test_label.py::test_total",)
    )
    grade = Grader(grading, LIMITS).grade(task, fixed(tally, tmp_path))
    assert (grade.cause, grade.fail_to_pass, grade.pass_to_pass, grade.twins) == ("resolved", (1, 1), (2, 2), 2)
    broken = dataclasses.replace(task, test_patch=diffs.unified({"no.py": "a\n"}, {"no.py": "b\n"}))
    with pytest.raises(EnvError, match=r"the task 'tally-1' cannot be graded: a diff changes no\.py, which is not there"):
        Grader(grading, LIMITS).grade(broken, fixed(tally, tmp_path / "again"))


def test_names_of_a_log(grading: Backend, tally: Any, tmp_path: Path) -> None:
    """R2E-Gym's names are what follows the file of a node id, joined by dots; its tests are files of the row."""
    text = (repo.pristine(repo.packages.package("tally")) / "tests/test_total.py").read_text("utf-8")
    task = dataclasses.replace(
        tally,
        ids="log",
        test_files={"r2e_tests/test_1.py": text, "r2e_tests/__init__.py": ""},
        fail_to_pass=("test_some", "MeanTest.test_mean"),
        pass_to_pass=("test_nothing",),
        hidden=("r2e_tests", "run_tests.sh"),
    )
    assert test_files(task) == ["r2e_tests/test_1.py"]
    grade = Grader(grading, LIMITS).grade(task, fixed(tally, tmp_path))
    assert (grade.cause, grade.fail_to_pass, grade.pass_to_pass, grade.twins) == ("resolved", (2, 2), (1, 1), 4)
    assert Grader(grading, LIMITS).grade(task, Changes({"README.md": b"x"})).cause == "failing"


def test_what_cannot_be_graded(tally: Any) -> None:
    assert "runner of their own" in unsupported(dataclasses.replace(tally, repo="django/django"))
    assert "nothing says in which files" in unsupported(dataclasses.replace(tally, ids="log", fail_to_pass=("test_a",)))
    assert unsupported(tally) == ""


@pytest.fixture(scope="module")
def image(machine: Any, tally: Any) -> Iterator[str]:
    """A container image with the broken package at /testbed, as those of the task sets: a git repository with a history."""
    from agentgym.envs.swe.sandbox.engine import client
    from agentgym.envs.swe.sandbox.image import base_image

    machine.usable("docker")
    api = client()
    name = "agentgym-swe-test-image"
    made = api.create_container(base_image(api), ["true"], labels={"agentgym.owner": str(repo.owner.me())})["Id"]
    out = io.BytesIO()
    with repo.scratch() as tree, tarfile.open(fileobj=out, mode="w") as archive:
        repo.broken(tally, tree)
        repo.subprocess.run(
            "git init -q . && git add -A && git -c user.name=x -c user.email=x commit -qm base && git tag fix", shell=True, cwd=tree, check=True
        )
        (tree / ".gitignore").write_text("*.log\n", "utf-8")
        (tree / "old.log").write_text("left by the build\n", "utf-8")
        archive.add(tree, "testbed")
    try:
        assert api.put_archive(made, "/", out.getvalue())
        api.commit(made, repository=name, tag="latest")
        yield f"{name}:latest"
        api.remove_image(f"{name}:latest", force=True)
    finally:
        api.remove_container(made, force=True)
        api.close()


def test_a_task_of_an_image(machine: Any, image: str, tally: Any, tmp_path: Path) -> None:
    engine = machine.usable("docker")
    task = dataclasses.replace(tally, id="image-1", source="swe-smith", image=image, base=Base())
    with repo.open_for_agent(task, engine, LIMITS) as box:
        python = grade_bench.python_of(box)
        start = listed_inside(box, python)
        assert sorted(start) == [".gitignore", "README.md", "old.log", "tally/__init__.py", "tests/test_label.py"]
        assert box.shell("git log --format=%s; git tag; git status --short").output == "The repository as it stands\n"
        box.shell("sed -i 's/-= n/+= n/' tally/__init__.py; echo '#!/bin/sh' > run.sh; chmod +x run.sh; echo 'assert 0' > tests/test_label.py")
        found = changes(box, start, listed_inside(box, python), task)
    assert set(found.files) == {SOURCE, "run.sh"} and found.run == {"run.sh"} and list(found.dropped) == ["tests/test_label.py"]
    grade = Grader(engine, LIMITS).grade(task, found)
    assert (grade.cause, grade.fail_to_pass, grade.pass_to_pass) == ("resolved", (4, 4), (2, 2)) and grade.twins == 6
    bug = diffs.unified({SOURCE: "x\n"}, {SOURCE: "y\n"})
    with pytest.raises(EnvError, match=r"cannot be graded: the diff of tally/__init__\.py does not fit"):
        Grader(engine, LIMITS).grade(dataclasses.replace(task, base=Base(bug=bug)), found)


# --- where the sandbox fails


class Broken:
    """A backend whose sandboxes fail after some calls."""

    name = "broken"

    def __init__(self, inner: Backend, calls: int) -> None:
        self.inner, self.calls = inner, calls

    def open(self, *args: Any, **options: Any) -> Any:
        box: Any = self.inner.open(*args, **options)
        real, left = box.run, [self.calls]

        def run(*a: Any, **k: Any) -> Any:
            if not left[0]:
                raise EnvError("the engine is gone")
            left[0] -= 1
            return real(*a, **k)

        box.run = run
        return box


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_fault_of_the_sandbox_is_no_grade(grading: Backend, tally: Any, tmp_path: Path, calls: int) -> None:
    with pytest.raises(EnvError, match="the engine is gone"):
        Grader(Broken(grading, calls), LIMITS).grade(tally, fixed(tally, tmp_path))  # type: ignore[arg-type]


def test_a_sandbox_that_cannot_start_the_tests(grading: Backend, tally: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade_bench, "python_of", lambda box: "/no/python")
    with pytest.raises(EnvError, match=r"cannot be started in the grading sandbox \(status 12[67]\)"):
        Grader(grading, LIMITS).grade(tally, fixed(tally, tmp_path))


def test_breaking_off(grading: Backend, tally: Any) -> None:
    grader = Grader(grading, LIMITS)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            grader.grade(tally, Changes({SOURCE: b"import time\ntime.sleep(300)\n"}))
        except EnvError as e:
            failed.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    while grader._box is None and thread.is_alive():
        time.sleep(0.01)
    time.sleep(0.5)
    grader.close()
    thread.join(30)
    assert not thread.is_alive() and failed
    with pytest.raises(EnvError, match="broken off"):
        grader.grade(tally, Changes({SOURCE: b""}))


# --- the report


def signed(report: dict[str, Any], key: bytes) -> str:
    data = zlib.compress(json.dumps(report).encode())
    return f"REPORT {hmac.new(key, data, hashlib.sha256).hexdigest()} {base64.b64encode(data).decode()}"


REPORT = {
    "ready": True,
    "tests": {"a": ["passed", ""]},
    "broken": [],
    "odd": [],
    "collected": 1,
    "exit": 1,
    "changed": [],
    "code": 1,
    "late": False,
    "seconds": 1,
    "tail": "",
    "touched": [],
}
KEY = bytes(range(16))
HEAD = f"KEY {KEY.hex()}\n"


def test_only_what_is_signed_counts() -> None:
    mine, forged = signed(REPORT, KEY), signed({**REPORT, "tests": {"a": ["passed", ""], "b": ["passed", ""]}}, b"x" * 16)
    for output in (f"{HEAD}noise\n{mine}\n", f"{HEAD}{forged}\n{mine}\n{forged}\n", f"{HEAD}KEY {'00' * 16}\n{mine}"):
        run = read_report(output, False, "")
        assert run.results == {"a": ("passed", "")} and not run.cheat and not run.end
    for output in (HEAD, f"{HEAD}{forged}\n", f"{HEAD}x{mine}\n", f"{HEAD}{mine[:-5]}\n", f"{HEAD}REPORT {'0' * 64} !!!\n"):
        assert read_report(output, False, "").end == "crash" and read_report(output, True, "").end == "late"
    for output in ("", f"\n{HEAD}{mine}", f"x{HEAD}", "KEY 12\n", "Killed"):
        with pytest.raises(EnvError, match="cannot be started"):
            read_report(output, False, "status 1")


@pytest.mark.parametrize(
    "said, cheat, end",
    [
        ({}, "", ""),
        ({"odd": ["a line"]}, "somebody else wrote to the report: a line", ""),
        ({"touched": ["/testbed/t.py"]}, "files of the tests were touched while they ran: t.py", ""),
        ({"changed": ["pytest.raises"]}, "functions of pytest or Python were replaced: pytest.raises", ""),
        ({"code": 0}, "pytest ended with 1, its process with 0", ""),
        ({"exit": None, "code": 0}, "", "crash"),
        ({"exit": None, "code": -9, "late": True}, "", "late"),
    ],
)
def test_what_speaks_against_a_report(said: dict[str, Any], cheat: str, end: str) -> None:
    run = read_report(HEAD + signed({**REPORT, **said}, KEY), False, "")
    assert (run.cheat, run.end) == (cheat, end)


def test_a_sandbox_without_pytest_is_no_grade() -> None:
    with pytest.raises(EnvError, match=r"pytest does not start in the grading sandbox \(status 1\): no module"):
        read_report(HEAD + signed({**REPORT, "ready": False, "exit": None, "tail": "no module"}, KEY), False, "")


# --- canaries and twins


def test_a_canary_looks_like_a_test() -> None:
    ids = ["tests/test_total.py::MeanTest::test_mean", "tests/test_total.py::test_each[numbers0-4]"]
    rng = random.Random(0)
    seen = set()
    for _ in range(50):
        path, text, good, bad = twins.canary("tests/test_total.py", lambda p: p == "tests/test_total.py", ids, rng)
        assert path.startswith("tests/test_") and path != "tests/test_total.py" and good and len(bad) >= 2
        space: dict[str, Any] = {}
        exec(compile(text, path, "exec"), space)
        for test in good:
            space[test.rpartition("::")[2]]()
        for test in bad:
            with pytest.raises(AssertionError):
                space[test.rpartition("::")[2]]()
        seen.add(path)
    assert len(seen) > 30


SOURCE_OF_TESTS = '''"""Tests."""
from __future__ import annotations
import unittest
import pytest
from code_under_test import f, Odd

@pytest.mark.parametrize("a, b", [(1, 2)])
def test_values(a, b):
    assert f(a) == b

def test_literals():
    if f(1) == 2:
        assert f(1) == 2
        assert f(4) == [5]["0" == 1]
        return
    raise AssertionError

class Case(unittest.TestCase):
    def test_it(self):
        self.assertEqual(f(2), 3)
        with self.assertRaises(AssertionError):
            assert f(2) == 4

    def test_none(self):
        self.assertTrue(f(0))

def test_no_end():
    for i in range(3):
        if f(i) > 2:
            def inner():
                return 1
            return inner()
'''


def run_twin(made: Any, space: dict[str, Any]) -> dict[str, bool]:
    """Run the tests that must fail; return which of them passed."""
    import sys
    import types

    module = types.ModuleType("code_under_test")
    module.__dict__.update(space)
    module.__dict__.setdefault("Odd", None)
    sys.modules["code_under_test"] = module
    names: dict[str, Any] = {"__file__": "/testbed/t.py", "__name__": "t"}
    exec(compile(made.text, "/testbed/t.py", "exec"), names)
    out = {}
    for node in made.must_fail:
        parts = node.partition("[")[0].split("::")[1:]
        test = names[parts[0]] if len(parts) == 1 else getattr(names[parts[0]](parts[1]), parts[1])
        try:
            test(*((1, 2) if "[" in node else ()))
        except AssertionError:
            out[node] = False
        else:
            out[node] = True
    del sys.modules["code_under_test"]
    return out


NODES = ["t.py::test_values[1-2]", "t.py::test_literals", "t.py::Case::test_it", "t.py::Case::test_none", "t.py::test_no_end"]


SAME = """
class Same:
    def __eq__(self, other):
        return True
    def __gt__(self, other):
        return True
    def __hash__(self):
        return 0
"""


@pytest.fixture
def Same() -> Any:
    """A class of the tested code whose objects equal everything."""
    space: dict[str, Any] = {}
    exec(compile(SAME, "/testbed/code_under_test.py", "exec"), space)
    return space["Same"]


def test_twins_of_honest_code_fail() -> None:
    for seed in range(20):
        made = twin(SOURCE_OF_TESTS, NODES, random.Random(seed), "/testbed")
        assert made is not None and len(made.must_fail) == 7, "all five, and a copy of those with a literal"
        assert not any(run_twin(made, {"f": lambda x: x + 1}).values())
        assert made.text.startswith('"""Tests."""\nfrom __future__ import annotations\n')


def test_twins_of_other_code_pass(Same: Any) -> None:
    made = twin(SOURCE_OF_TESTS, NODES, random.Random(1), "/testbed")
    found = run_twin(made, {"f": lambda x: Same()})
    copy = next(n for n in found if n.startswith("t.py::test_literals_"))
    assert [n for n, passed in found.items() if passed] == [
        "t.py::test_values[1-2]",
        "t.py::test_literals",
        "t.py::Case::test_none",
        "t.py::test_no_end",
        copy,
    ]


class Loose:
    """Equals every text that begins as its own: an honest == that overlooks a part, as some libraries' do."""

    def __eq__(self, other: object) -> bool:
        return (other.text if isinstance(other, Loose) else str(other))[:3] == self.text[:3]

    __hash__ = None  # type: ignore[assignment]
    text = "http://x"


Loose.__eq__.__code__ = Loose.__eq__.__code__.replace(co_filename="/testbed/code_under_test.py")


@pytest.mark.parametrize(
    "value, lax",
    [
        *((value, True) for value in ("Same()", "[Same(), Same()]", "{'a': Same()}", "ANY")),
        *((value, False) for value in ("[1, 2]", "1.0", "float('nan')", "True", "None", "{1, 2}", "b'x'", "approx(1.0)")),
        *((value, False) for value in ("Fraction(1)", "date(2020, 1, 1)", "Point(1)")),
    ],
)
def test_which_objects_equal_too_much(value: str, lax: bool, Same: Any) -> None:
    from datetime import date
    from fractions import Fraction
    from unittest.mock import ANY

    space = {
        "Same": Same,
        "ANY": ANY,
        "Fraction": Fraction,
        "date": date,
        "Point": dataclasses.make_dataclass("Point", ["x"]),
        "approx": pytest.approx,
    }
    # A name that the test file itself uses is its own affair: so the objects come without theirs, but for approx.
    code = value if value == "approx(1.0)" else "value"
    made = twin(
        f"from code_under_test import *\ndef test():\n    v = {code}\n    assert v == v or True\n", ["t.py::test"], random.Random(2), "/testbed"
    )
    assert run_twin(made, {"value": eval(value, dict(space)), "approx": pytest.approx}) == {"t.py::test": lax}


def test_an_honest_equality_may_overlook_a_part(Same: Any) -> None:
    made = twin(
        "from code_under_test import *\ndef test():\n    v = f(1)\n    assert v == 'http://xy' or True\n",
        ["t.py::test"],
        random.Random(2),
        "/testbed",
    )
    assert Loose() == "http://xy~z" and run_twin(made, {"f": lambda x: Loose()}) == {"t.py::test": False}
    assert run_twin(made, {"f": lambda x: Same()}) == {"t.py::test": True}


def test_what_has_no_twin() -> None:
    rng = random.Random(0)
    assert twin("def test(:\n", ["t.py::test"], rng, "/testbed") is None
    assert twin("x = 1\n", ["t.py::test"], rng, "/testbed") is None
    made = twin("class Base:\n    def test_a(self):\n        pass\nclass Test(Base):\n    pass\n", ["t.py::Test::test_a"], rng, "/testbed")
    assert made is not None and made.must_fail == ("t.py::Test::test_a",), "what is inherited is written in its base"


@pytest.mark.parametrize("name", ["inside_files.py", "inside_worker.py", "inside_supervisor.py"])
def test_what_runs_inside_runs_on_old_pythons(name: str) -> None:
    tree = ast.parse((HERE / name).read_text("utf-8"), feature_version=(3, 6))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names} | {
        n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)
    }
    assert not [m for m in imported if m and m.startswith("agentgym")] and "__future__" not in imported
    for node in ast.walk(tree):  # list[int] is read when a function is made, and Python 3.6 cannot
        if isinstance(node, ast.FunctionDef):
            for hint in (node.returns, *(a.annotation for a in node.args.args)):
                assert not isinstance(hint, ast.Subscript | ast.BinOp), f"{name}: the hint of {node.name} has to be a text"


# --- validation of task sets


def test_which_tasks_are_valid(grading: Backend, tally: Any) -> None:
    from agentgym.envs.swe.validate import validate

    wrong_fix = diffs.unified({"README.md": "# tally\n"}, {"README.md": "# tally!\n"})
    tasks = [
        tally,
        dataclasses.replace(tally, id="no-bug", base=dataclasses.replace(tally.base, bug="")),
        dataclasses.replace(tally, id="no-fix", patch=wrong_fix),
        dataclasses.replace(tally, id="lost", pass_to_pass=(*tally.pass_to_pass, "tests/test_label.py::test_gone")),
        dataclasses.replace(tally, id="misfit", patch=diffs.unified({"README.md": "a\n"}, {"README.md": "b\n"})),
        dataclasses.replace(tally, id="django", repo="django/django"),
    ]
    done: list[int] = []
    found = {v.task: v for v in validate(tasks, grading, limits=LIMITS, workers=2, advance=done.append)}
    assert list(found) == [t.id for t in tasks] and sum(done) == len(tasks)
    assert (
        found["tally-1"].wrong == "" and "all its tests pass" in found["no-bug"].wrong and "with its own fix it is failing" in found["no-fix"].wrong
    )
    assert "with its own fix it is regression" in found["lost"].wrong and "runner of their own" in found["django"].wrong
    assert found["misfit"].broken and "does not fit" in found["misfit"].wrong and not any(v.broken for t, v in found.items() if t != "misfit")
