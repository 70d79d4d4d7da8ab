"""The edit tool over a real sandbox: what it does, and what its errors tell the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.envs.swe.sandbox import Backend, Limits, Sandbox
from agentgym.envs.swe.tools import Editor, needs
from agentgym.toolcall import CallError

CODE = """import os


def one(x):
    if x:
        return 1
    return None


def two(x):
    if x:
        return 2
    return None
"""


@pytest.fixture(scope="module")
def shared_editor_box(grading: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    tree = tmp_path_factory.mktemp("edited")
    (tree / "pkg" / "deep" / "deeper").mkdir(parents=True)
    for name, data in {
        "pkg/code.py": CODE.encode(),
        "pkg/deep/deeper/x.py": b"",
        "dos.txt": b"a\r\nb\r\nc\r\n",
        "no_end.txt": b"last",
        "binary": b"a\0b",
        "latin": b"caf\xe9",
        "long.txt": b"0123456789" * 30 + b"\n" * 40,
        ".hidden": b"x",
    }.items():
        (tree / name).write_bytes(data)
    with grading.open(tree, limits=Limits(memory_mb=512, disk_mb=64)) as box:  # type: ignore[attr-defined]
        yield box


@pytest.fixture
def box(shared_editor_box: Sandbox) -> Sandbox:
    shared_editor_box.reset()
    return shared_editor_box


@pytest.fixture
def edit(box: Sandbox) -> Editor:
    return Editor(box, 1000)


def wrong(act: object, *args: object) -> str:
    with pytest.raises(CallError) as e:
        act(*args)  # type: ignore[operator]
    return str(e.value)


def test_view(edit: Editor) -> None:
    assert edit.view("pkg/code.py", [4, 6]) == "/testbed/pkg/code.py, lines 4 to 6 of 13\n4\tdef one(x):\n5\t    if x:\n6\t        return 1"
    assert edit.view("/testbed/pkg/../pkg/code.py", None).startswith("/testbed/pkg/code.py (13 lines)\n 1\timport os\n 2\t\n")
    assert edit.view("pkg/code.py", [12, -1]).endswith("12\t        return 2\n13\t    return None")
    assert edit.view("pkg/code.py", [12, 99]).endswith("13\t    return None"), "beyond the end is the end"
    assert edit.view("pkg/deep/deeper/x.py", None) == "/testbed/pkg/deep/deeper/x.py is empty"
    listed = edit.view(".", None)
    assert "\npkg/\npkg/code.py\npkg/deep/" in listed and "deeper" not in listed and ".hidden" not in listed


def test_what_view_says_of_a_wrong_call(edit: Editor) -> None:
    assert "within 1 to 13" in wrong(edit.view, "pkg/code.py", [14, 15])
    assert "within 1 to 13" in wrong(edit.view, "pkg/code.py", [0, 3])
    assert "ends before it begins" in wrong(edit.view, "pkg/code.py", [5, 4])
    assert "has 1 numbers" in wrong(edit.view, "pkg/code.py", [5])
    assert "is a folder" in wrong(edit.view, "pkg", [1, 2])
    assert "such as view_range=[1, " in wrong(Editor(edit._box, 100).view, "long.txt", None)
    assert "Did you mean /testbed/pkg/code.py?" in wrong(edit.view, "code.py", None)
    assert "View /testbed to see what is" in wrong(edit.view, "nothing/like/it", None)
    assert "binary" in wrong(edit.view, "binary", None) and "binary" in wrong(edit.view, "latin", None)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "/testbed/../etc/passwd", "/testbedx/y", "/tmp/x", "pkg/../../x"])
def test_paths_outside(edit: Editor, path: str) -> None:
    for act in (lambda: edit.view(path, None), lambda: edit.create(path, "x"), lambda: edit.replace(path, "a", "b"), lambda: edit.undo(path)):
        assert "outside of the repository" in wrong(act)


def test_odd_paths(edit: Editor) -> None:
    assert "path is ''" in wrong(edit.view, "", None)
    assert "path is 'a\\x00b'" in wrong(edit.create, "a\0b", "x")
    assert edit.create("a b/ü 'q'.py", "x\n") and edit.view("a b/ü 'q'.py", None).endswith("1\tx")
    assert "a part of its path is a file" in wrong(edit.create, "dos.txt/x", "x")
    assert "name too long" in wrong(edit.create, f"{'x' * 300}.py", "x").lower()


def test_create(edit: Editor, box: Sandbox) -> None:
    assert edit.create("new/deep/file.py", "a = 1\nb = 2\n") == "/testbed/new/deep/file.py is written (2 lines)."
    assert box.read("new/deep/file.py") == b"a = 1\nb = 2\n"
    assert "is there already" in wrong(edit.create, "new/deep/file.py", "c") and "is there already" in wrong(edit.create, "pkg", "c")
    assert "lone surrogate" in wrong(edit.create, "s.py", "\ud800") and "too much" in wrong(edit.create, "s.py", "x" * (3 << 20))


def test_replace(edit: Editor, box: Sandbox) -> None:
    said = edit.replace("pkg/code.py", "        return 1\n", "        y = 1\n        return y\n")
    lines = [
        " 2\t",
        " 3\t",
        " 4\tdef one(x):",
        " 5\t    if x:",
        " 6\t        y = 1",
        " 7\t        return y",
        " 8\t    return None",
        " 9\t",
        "10\t",
        "11\tdef two(x):",
    ]
    assert said == "/testbed/pkg/code.py is changed:\n" + "\n".join(lines)
    assert box.read("pkg/code.py").decode() == CODE.replace("        return 1\n", "        y = 1\n        return y\n")
    edit.replace("pkg/code.py", "import os\n\n\n", "")
    assert box.read("pkg/code.py").startswith(b"def one")


def test_a_replacement_that_is_not_unique(edit: Editor, box: Sandbox) -> None:
    said = wrong(edit.replace, "pkg/code.py", "    if x:\n", "    if not x:\n")
    assert "stands 2 times" in said and "at lines 5, 11" in said and "Add lines around it" in said
    assert "at lines 1, 2, 3" in wrong(edit.replace, "long.txt", "\n\n", "x"), "overlapping ones count"
    assert box.read("pkg/code.py").decode() == CODE


def test_a_replacement_that_is_not_there(edit: Editor) -> None:
    said = wrong(edit.replace, "pkg/code.py", "def one(x):\n  if x:\n", "z")
    assert "blanks or tabs differ. Lines 4 to 5 are, exactly:\n4\tdef one(x):\n5\t    if x:" in said
    said = wrong(edit.replace, "pkg/code.py", "    if x:\n        return 3\n", "z")
    assert "Most like it:" in said and "5\t    if x:\n6\t        return 1" in said and "11\t    if x:\n12\t        return 2" in said
    assert "nothing like it" in wrong(edit.replace, "pkg/code.py", "@@@@ ????", "z")
    assert "old_str is empty" in wrong(edit.replace, "pkg/code.py", "", "z") and "are the same" in wrong(edit.replace, "pkg/code.py", "os", "os")
    assert "is a folder" in wrong(edit.replace, "pkg", "a", "b")


def test_line_ends_are_kept(edit: Editor, box: Sandbox) -> None:
    edit.replace("dos.txt", "a\nb\n", "a\nx\nb\n")
    edit.insert("dos.txt", 4, "d")
    assert box.read("dos.txt") == b"a\r\nx\r\nb\r\nc\r\nd\r\n"
    edit.insert("no_end.txt", 1, "more")
    assert box.read("no_end.txt") == b"last\nmore\n"


def test_insert(edit: Editor, box: Sandbox) -> None:
    assert edit.insert("pkg/code.py", 0, "# top").startswith("1 lines are inserted in /testbed/pkg/code.py:\n1\t# top\n2\timport os")
    edit.insert("pkg/code.py", 14, "# end\n\n# really")
    assert box.read("pkg/code.py").decode() == f"# top\n{CODE}# end\n\n# really\n"
    assert "give 0 (before the first line) to 17" in wrong(edit.insert, "pkg/code.py", 18, "x")
    assert "give 0" in wrong(edit.insert, "pkg/code.py", -1, "x")
    edit.insert("pkg/deep/deeper/x.py", 0, "")
    assert box.read("pkg/deep/deeper/x.py") == b"\n"


def test_undo(edit: Editor, box: Sandbox) -> None:
    assert "no change of /testbed/pkg/code.py to undo" in wrong(edit.undo, "pkg/code.py")
    edit.create("new.py", "a\n")
    edit.replace("new.py", "a", "b")
    edit.insert("pkg/code.py", 0, "# top")
    assert "has 1 lines" in edit.undo("new.py") and box.read("new.py") == b"a\n"
    assert "removed again" in edit.undo("new.py")
    assert "Files with changes by this tool: /testbed/pkg/code.py." in wrong(edit.undo, "new.py")
    edit.undo("pkg/code.py")
    assert box.read("pkg/code.py").decode() == CODE and box.run("ls new.py").code != 0
    edit.create("new.py", "again")  # it may be made again


def test_a_link_out_of_the_tree_leads_nowhere_on_the_host(edit: Editor, box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s", "utf-8")
    box.run(f"ln -s {tmp_path} out; ln -s /etc/passwd passwd")
    assert "is not there" in wrong(edit.view, "out/secret", None)
    assert "cannot be written" in wrong(edit.replace, "passwd", "agent:x", "agent:y")


def test_arguments_of_each_command() -> None:
    needs("view", view_range=None)
    needs("view", view_range=[1, 2])
    needs("str_replace", old_str="a", new_str=None)
    needs("undo", old_str=None)
    assert wrong(lambda: needs("create", file_text=None)) == "edit with command='create' lacks file_text. It takes path, file_text."
    assert "lacks old_str" in wrong(lambda: needs("str_replace", old_str=None, new_str="x"))
    assert "lacks insert_line" in wrong(lambda: needs("insert", insert_line=None, new_str="x"))
    assert "does not take old_str. It takes path alone" in wrong(lambda: needs("undo", old_str="a"))
    assert "does not take file_text" in wrong(lambda: needs("insert", insert_line=0, new_str="x", file_text="y"))
