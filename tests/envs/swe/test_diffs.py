"""Unified diffs: made, read, reversed and applied, and what git itself says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.swe.diffs import apply, lines_of, parse, patched, reverse, unified
from agentgym.errors import DataError

GIT = """diff --git a/pkg/one.py b/pkg/one.py
index 83db48f..bf269f4 100644
--- a/pkg/one.py
+++ b/pkg/one.py
@@ -1,3 +1,4 @@ def f():
 a
-b
+B
+BB
 c
diff --git a/old.txt b/old.txt
deleted file mode 100644
index 83db48f..0000000
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
\\ No newline at end of file
diff --git a/new.txt b/new.txt
new file mode 100644
index 0000000..83db48f
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+one
+two
"""
REVERSED = """diff --git a/pkg/one.py b/pkg/one.py
--- a/pkg/one.py
+++ b/pkg/one.py
@@ -1,4 +1,3 @@ def f():
 a
-B
-BB
+b
 c
diff --git a/old.txt b/old.txt
new file mode 100644
--- /dev/null
+++ b/old.txt
@@ -0,0 +1 @@
+gone
\\ No newline at end of file
diff --git a/new.txt b/new.txt
deleted file mode 100644
--- a/new.txt
+++ /dev/null
@@ -1,2 +0,0 @@
-one
-two
"""


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_reverse_by_hand() -> None:
    assert reverse(GIT) == REVERSED
    assert reverse(REVERSED) == reverse(reverse(GIT))
    assert [(f.old, f.new) for f in parse(GIT)] == [("pkg/one.py", "pkg/one.py"), ("old.txt", None), (None, "new.txt")]


def test_apply_and_back(tmp_path: Path) -> None:
    place = tree(tmp_path)
    (place / "pkg").mkdir()
    (place / "pkg/one.py").write_text("a\nb\nc\n")
    (place / "old.txt").write_text("gone")
    assert apply(GIT, place) == ["new.txt", "old.txt", "pkg/one.py"]
    assert (
        (place / "pkg/one.py").read_text() == "a\nB\nBB\nc\n" and (place / "new.txt").read_text() == "one\ntwo\n" and not (place / "old.txt").exists()
    )
    apply(reverse(GIT), place)
    assert (place / "pkg/one.py").read_text() == "a\nb\nc\n" and (place / "old.txt").read_text() == "gone" and not (place / "new.txt").exists()


def test_nothing_is_changed_where_it_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/one.py").write_text("a\nb\nc\n")
    (tmp_path / "old.txt").write_text("other")
    with pytest.raises(DataError, match=r"the diff of old\.txt does not fit at line 1: expected 'gone'"):
        apply(GIT, tmp_path)
    assert (tmp_path / "pkg/one.py").read_text() == "a\nb\nc\n" and not (tmp_path / "new.txt").exists()


@pytest.mark.parametrize("path", ["../out.txt", "/etc/out.txt", "link/out.txt"])
def test_no_way_out_of_the_tree(tmp_path: Path, path: str) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path)
    diff = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(DataError, match="not inside the tree"):
        apply(diff, tmp_path / "tree")
    assert not (tmp_path / "out.txt").exists()


def test_plain_diffs_without_git_lines() -> None:
    diff = "--- a/x.py\t2020-01-01\n+++ b/x.py\t2020-01-02\n@@ -1 +1 @@\n-a\n+b\n--- a/y.py\n+++ b/y.py\n@@ -2,0 +3 @@\n+c\n"
    files = parse(diff)
    assert [f.path for f in files] == ["x.py", "y.py"]
    assert patched("a\n", files[0]) == "b\n" and patched("1\n2\n3\n", files[1]) == "1\n2\nc\n3\n"


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("not a diff\n", "expected a unified diff"),
        ("@@ -1 +1 @@\n-a\n+b\n", "no file is named before it"),
        ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n", "has other lines than it says"),
        ("--- a/x\n+++ b/x\n@@ one @@\n", "expected '@@ -start,count"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 3\n", "a binary change"),
    ],
)
def test_what_is_no_diff(diff: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        parse(diff)


TEXTS = st.text(alphabet="ab\n\r\x0c\u2028é", max_size=30)


@given(st.dictionaries(st.sampled_from(["a.py", "b/c.py", "d e.py"]), TEXTS), st.dictionaries(st.sampled_from(["a.py", "b/c.py", "d e.py"]), TEXTS))
def test_any_change_and_its_reverse(before: dict[str, str], after: dict[str, str]) -> None:
    """Applying a diff gives what it was made for; its reverse is the diff the other way round; other ends of lines are no ends."""
    diff = unified(before, after)
    assert bool(diff) == (before != after)
    there = {f.path: f for f in parse(diff)}
    back = {f.path: f for f in parse(reverse(diff))}
    for path in before.keys() & after.keys():
        if before[path] != after[path]:
            assert patched(before[path], there[path]) == after[path]
            assert patched(after[path], back[path]) == before[path]
    assert reverse(reverse(diff)) == diff
    assert all("".join(lines_of(text)) == text for text in before.values())


def test_git_agrees(tmp_path: Path) -> None:
    """git applies what `unified` and `reverse` write, to the same result."""
    try:
        subprocess.run(["git", "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git")
    before = {"a.py": "".join(f"{i}\n" for i in range(30)), "b.py": "x", "gone.py": "y\n"}
    after = {"a.py": before["a.py"].replace("3\n", "three\n", 1).replace("25\n", ""), "b.py": "x\nz", "new.py": "n\n"}
    diff = unified(before, after)
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    for text, expected in ((diff, after), (reverse(diff), before)):
        subprocess.run(["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True, capture_output=True)
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == expected
