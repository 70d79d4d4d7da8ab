"""The repository that the agent sees, and the changes that are taken out of it."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe import changes as counted
from agentgym.envs.swe import diffs, inside_files, packages, repo
from agentgym.envs.swe.changes import Changes, Rules, changes, flags, listed, listed_inside
from agentgym.envs.swe.sandbox import Backend, Limits, Sandbox
from agentgym.envs.swe.state import tree_key
from agentgym.errors import DataError, EnvError

PYTHON = "/opt/python/bin/python3"
LIMITS = Limits(memory_mb=512, disk_mb=64)


def git(tree: Path, *args: str) -> str:
    return subprocess.run(["git", "-c", "safe.directory=*", *args], cwd=tree, check=True, capture_output=True, text=True).stdout


def test_one_commit_and_nothing_else(tally: Any) -> None:
    tree = repo.agent_tree(tally)
    assert git(tree, "log", "--all", "--format=%an %ae %at %s") == "base base@localhost 1577836800 The repository as it stands\n"
    assert (
        git(tree, "rev-list", "--all", "--reflog") == git(tree, "rev-parse", "HEAD")
        and git(tree, "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    )
    assert (
        git(tree, "status", "--porcelain", "--ignored")
        == git(tree, "remote")
        == git(tree, "stash", "list")
        == git(tree, "fsck", "--unreachable", "--no-reflogs")
        == ""
    )
    assert not any((tree / ".git" / name).exists() for name in ("logs", "hooks", "ORIG_HEAD", "FETCH_HEAD", "packed-refs", "COMMIT_EDITMSG"))
    assert not [p for p in (tree / ".git").rglob("*") if p.is_file() and str(packages.package("tally").sha256)[:8] in p.read_text("latin-1")]


def test_the_bug_is_there_and_the_hidden_tests_are_not(tally: Any) -> None:
    tree = repo.agent_tree(tally)
    assert "result -= n" in (tree / "tally/__init__.py").read_text("utf-8")
    assert sorted(inside_files.entries(str(tree)))[0][0] == "README.md" and [e[0] for e in inside_files.entries(str(tree))][1:] == [
        "tally/__init__.py",
        "tests/test_label.py",
    ]
    objects = git(tree, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").split("\n")[:-1]
    texts = [git(tree, "cat-file", "blob", line.split()[1]) for line in objects if line.startswith("blob")]
    assert len(texts) == 3 and not [t for t in texts if "result += n" in t or "test_some" in t]


def test_the_same_task_gives_the_same_commit(tally: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = git(repo.agent_tree(tally), "rev-parse", "HEAD")
    assert repo.agent_tree(tally) == repo.agent_tree(tally)
    file = packages.fetch(packages.package("tally"))
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    (tmp_path / "swe" / "sdists").mkdir(parents=True)
    (tmp_path / "swe" / "sdists" / file.name).write_bytes(file.read_bytes())
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    assert git(repo.agent_tree(tally), "rev-parse", "HEAD") == first and str(repo.agent_tree(tally)).startswith(str(tmp_path))


def test_visible_tests_stay_where_a_patch_brings_the_hidden_ones(tally: Any) -> None:
    task = dataclasses.replace(tally, test_patch=diffs.unified({}, {"tests/test_total.py": "def test(): pass\n"}))
    assert (repo.agent_tree(task) / "tests/test_total.py").exists() and not (repo.agent_tree(tally) / "tests/test_total.py").exists()


def test_a_task_of_another_version(tally: Any, tmp_path: Path) -> None:
    task = dataclasses.replace(tally, base=dataclasses.replace(tally.base, sha256="0" * 64))
    with pytest.raises(DataError, match=r"'tally-1' is of tally 1\.0, which packages\.py does not pin"):
        repo.broken(task, tmp_path / "x")


def test_in_the_sandbox(engine: Backend, tally: Any) -> None:
    with repo.open_for_agent(tally, engine, LIMITS) as box:  # type: ignore[attr-defined]
        assert box.shell("git status --short; git log --oneline | wc -l; whoami; echo $PYTHONPATH").output == "1\nagent\n/testbed\n"
        assert box.shell("python -c 'import tally; print(tally.total([1, 2]))'").output == "-3\n"
        assert box.shell("python -m pytest -q tests | tail -n 1").output.startswith("1 passed")
        assert box.shell("echo x >> README.md; git commit -qam own; git log --format=%an").output == "agent\nbase\n"
        assert box.run("python -m pip --version").code != 0 and box.run("ls ~/.cache").code != 0


# --- the state


@pytest.fixture(scope="module")
def opened(engine: Backend, tally: Any) -> Any:
    with repo.open_for_agent(tally, engine, LIMITS) as box:  # type: ignore[attr-defined]
        yield box


@pytest.fixture
def box(opened: Any) -> Sandbox:
    opened.reset()
    return opened


def test_the_key_of_the_state(box: Sandbox, tally: Any) -> None:
    clean = tree_key(box, PYTHON)
    assert clean == tree_key(box, PYTHON) == inside_files.key(str(repo.agent_tree(tally)))
    box.shell("cat README.md; python -c 'import tally'; git status; git tag x; ls > /tmp/x; mkdir empty; cd tests; export A=1")
    assert tree_key(box, PYTHON) == clean, "looking around is no other state"
    seen = {clean}
    for command in (
        "echo 'x' >> README.md",
        "touch new",
        "chmod +x README.md",
        "ln -s README.md link",
        "mv tests tests2",
        "rm README.md",
        "echo a > 'ü \n x'",
    ):
        box.shell(f"cd /testbed; {command}")
        assert tree_key(box, PYTHON) not in seen, command
        seen.add(tree_key(box, PYTHON))


def test_different_ways_to_one_state(box: Sandbox) -> None:
    keys = set()
    ways = (
        "sed -i 's/-= n/+= n/' tally/__init__.py",
        "python - <<'E'\np = 'tally/__init__.py'\ns = open(p).read()\nopen(p, 'w').write(s.replace('-= n', '+= n'))\nE",
        "git checkout -q -b x; sed 's/-= n/+= n/' tally/__init__.py > /tmp/x; cat /tmp/x > tally/__init__.py; git commit -qam x; rm -r .git",
    )
    for command in ways:
        box.reset()
        box.shell(command)
        keys.add(tree_key(box, PYTHON))
    assert len(keys) == 1


def test_the_agent_cannot_forge_or_stop_the_key(box: Sandbox) -> None:
    clean = tree_key(box, PYTHON)
    for command in (
        "python() { echo 00000000000000000000000000000000; }; export -f python; function /opt/python/bin/python3 { echo 0; }",
        "export PYTHONPATH=/tmp PYTHONSTARTUP=/tmp/x PYTHONHOME=/tmp",
        "mkdir -p ~/.local/lib; printf 'import hashlib\\nhashlib.sha256 = None\\n' > hashlib.py; cp hashlib.py json.py; rm hashlib.py json.py",
        "kill -9 -1",
        "(while :; do for p in /proc/[0-9]*; do grep -q testbed $p/cmdline && kill -9 ${p#/proc/}; done; done) >/dev/null 2>&1 &",
    ):
        box.shell(command)
        assert tree_key(box, PYTHON) == clean, command


# --- the changes


def taken(box: Sandbox, task: Any) -> Changes:
    return changes(box, listed(repo.agent_tree(task)), listed_inside(box, PYTHON), task)


def test_what_is_taken_out(box: Sandbox, tally: Any) -> None:
    assert taken(box, tally) == Changes()
    box.shell(
        "echo a > 'new ü.txt'; mkdir -p deep/er; echo b > deep/er/x.py; rm README.md; echo c > run.sh; chmod +x run.sh; "
        "sed -i 's/-=/+=/' tally/__init__.py; git add -A; git commit -qm x; printf '\\xff\\x00' > bin"
    )
    found = taken(box, tally)
    assert {p: d for p, d in found.files.items() if p != "tally/__init__.py"} == {
        "new ü.txt": b"a\n",
        "deep/er/x.py": b"b\n",
        "README.md": None,
        "run.sh": b"c\n",
        "bin": b"\xff\x00",
    }
    assert b"+= n" in (found.files["tally/__init__.py"] or b"") and found.run == {"run.sh"} and not found.dropped


def test_what_is_not_taken_out(box: Sandbox, tally: Any) -> None:
    box.shell(
        "ln -sf /etc/passwd README.md; mkfifo pipe; echo x > secret; chmod 000 secret; head -c 3M /dev/zero > big; touch a.pyc; "
        "touch tests/test_total.py; echo > tests/test_label.py; mkdir -p __pycache__ x/.git; touch __pycache__/y x/.git/z; "
        "mkdir d; touch d/e; chmod 000 d"
    )
    found = taken(box, tally)
    assert not found.files
    assert found.dropped == {
        "README.md": "it is a link",
        "big": "it has more than 2 MB, or all have more than 16 MB",
        "d": "it cannot be read",
        "pipe": "it is no file",
        "secret": "it cannot be read",
        "tests/test_label.py": "it is a test",
        "tests/test_total.py": "it is in the place of a hidden test",
    }


def test_names_that_are_no_text(box: Sandbox, tally: Any) -> None:
    box.run("touch $'a\\xff.py' $'b\\n.py'")
    found = taken(box, tally)
    assert set(found.files) == {"b\n.py"} and list(found.dropped) == ["a\udcff.py"]


def test_many_files(box: Sandbox, tally: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "MAX_COUNT", 3)
    box.run("touch a1 a2 a3 a4 a5")
    found = taken(box, tally)
    assert list(found.files) == ["a1", "a2", "a3"] and found.dropped["a5"] == "more than 3 files were changed"


def test_a_listing_that_cannot_be_had(box: Sandbox) -> None:
    with pytest.raises(EnvError, match=r"cannot be listed \(status 12[67]\)"):
        listed_inside(box, "/no/python")


RULES: dict[str, str] = {
    "tally/new.py": "",
    "tally/types.py": "",
    "tally/sub/__init__.py": "",
    "tally/sub/json.py": "",
    "docs/code/readme.rst": "",
    "setup.py": "",
    "lib/thing.py": "",
    "conftest.py": "pytest or Python loads it by itself",
    "tally/conftest.py": "pytest or Python loads it by itself",
    "pytest.ini": "pytest or Python loads it by itself",
    "sub/.coveragerc": "pytest or Python loads it by itself",
    "usercustomize.py": "pytest or Python loads it by itself",
    "setup.cfg": "it may hold settings of pytest",
    "tox.ini": "it may hold settings of pytest",
    "evil.pth": "it is compiled, or Python loads it by itself",
    "tally/fast.so": "it is compiled, or Python loads it by itself",
    "x.egg-info/entry_points.txt": "it is the metadata of a package, which may name plugins",
    "x-1.dist-info/METADATA": "it is the metadata of a package, which may name plugins",
    "tests/test_label.py": "it is a test",
    "tests/data/x.json": "it is a test",
    "tally/test_new.py": "it is a test",
    "tests/test_total.py": "it is in the place of a hidden test",
    "json.py": "it would be imported instead of json",
    "json/__init__.py": "it would be imported instead of json",
    "lib/pytest.py": "it would be imported instead of pytest",
    "_pytest/__init__.py": "it would be imported instead of _pytest",
    "other/xdist/plugin.py": "it would be imported instead of xdist",
    "test_total/__init__.py": "it would be imported instead of test_total",
    "lib/test_label/__init__.py": "it would be imported instead of test_label",
}


@pytest.mark.parametrize("path", RULES)
def test_the_rules(path: str, tally: Any) -> None:
    start = listed(repo.agent_tree(tally))
    file = ("file", 0, 1, "x")
    rules = Rules(start, {**start, path: file, "tally/sub/__init__.py": file}, tally)
    assert rules.left_out(path, file) == RULES[path]


def test_what_the_fix_itself_changes_is_no_test(tally: Any) -> None:
    paths = {"tally/test/client.py": "a\n", "setup.cfg": "b\n"}
    task = dataclasses.replace(tally, patch=diffs.unified(paths, {p: f"{t}x\n" for p, t in paths.items()}))
    start = {**listed(repo.agent_tree(tally)), **{p: ("file", 0, 1, "x") for p in paths}}
    for path in paths:
        assert Rules(start, start, task).left_out(path, ("file", 0, 2, "y")) == "" != Rules(start, start, tally).left_out(path, ("file", 0, 2, "y"))


def test_flags_are_what_is_new() -> None:
    found = Changes({"a.py": b"import ctypes, _pytest\nos._exit(0)\n", "b.py": None}, dropped={"conftest.py": "it is a test"})
    assert flags(found, {"a.py": b"import ctypes\n"}) == ["a.py: _pytest", "a.py: pytest", "a.py: os._exit", "conftest.py: dropped, it is a test"]


# --- places


@pytest.mark.parametrize("kind", ["folder", "sandbox"])
def test_a_diff_in_a_place(kind: str, opened: Any, box: Sandbox, tmp_path: Path) -> None:
    make: Callable[[], repo.Place] = {"folder": lambda: repo.FolderPlace(tmp_path), "sandbox": lambda: repo.BoxPlace(box)}[kind]
    place = make()
    before = {"one.py": "a\nb\n", "gone.txt": "x\n", "old/name.txt": "same\n"}
    for path, text in before.items():
        place.write(path, text.encode())
    after = {"one.py": "a\nc\n", "made/new.py": "n\n", "old/name.txt": "same\n"}
    repo.apply(diffs.unified(before, after), place)
    assert {p: place.read(p) for p in (*before, *after)} == {p: after[p].encode() if p in after else None for p in (*before, *after)}
    with pytest.raises(DataError, match="does not fit"):
        repo.apply(diffs.unified({"one.py": "z\n"}, {"one.py": "y\n"}), place)
    with pytest.raises(DataError, match=r"no\.py, which is not there"):
        repo.apply(diffs.unified({"no.py": "z\n"}, {"no.py": "y\n"}), place)
    place.remove("old")
    place.remove("old")
    assert place.read("old/name.txt") is None and place.read("made") is None


def test_a_folder_that_is_removed_in_any_case() -> None:
    with pytest.raises(RuntimeError), repo.scratch() as tree:
        (tree / "x").write_text("x", "utf-8")
        raise RuntimeError
    assert not tree.parent.exists()
