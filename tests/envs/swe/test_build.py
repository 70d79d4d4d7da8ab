"""The builder: how tests are run and watched, what a valid bug is, that a killed builder goes on, and the set that ships."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from agentgym.cache import cache_dir
from agentgym.envs.swe import build as builder
from agentgym.envs.swe import diffs, mutate, packages, taskset
from agentgym.envs.swe.build import build, difficulty
from agentgym.envs.swe.build_run import Outcome, Runner
from agentgym.envs.swe.build_trial import Bench, Journal, Trial
from agentgym.envs.swe.packages import PACKAGES, Package, unpack
from agentgym.envs.swe.sandbox import Backend
from agentgym.envs.swe.task import SweTask
from agentgym.errors import DataError

FILES = {
    "toy/__init__.py": '''
        """Numbers and words."""


        def total(values, start=0):
            """Return the sum of all."""
            for value in values:
                start += value
            return start


        def clip(value, low, high):
            if value < low:
                return low
            return high if value > high else value


        def shout(text):
            return text.strip().upper() + "!"


        def pairs(items):
            for i in range(0, len(items) - 1, 2):
                yield items[i], items[i + 1]


        class Box:
            """Holds the last things that were put into it."""

            def __init__(self, size=2):
                self.size, self.things = size, []

            def put(self, thing):
                self.things.append(thing)
                while len(self.things) > self.size:
                    self.things.pop(0)

            def __len__(self):
                return len(self.things)
        ''',
    "tests/test_toy.py": """
        import pytest
        from toy import Box, clip, pairs, shout, total


        def test_total():
            assert total([1, 2, 3]) == 6


        def test_start():
            assert total([1], start=5) == 6


        @pytest.mark.parametrize("value, result", [(1, 2), (3, 3), (9, 4), pytest.param(2, 2, id="odd [id] :: é\\n")])
        def test_clip(value, result):
            assert clip(value, 2, 4) == result


        def test_shout():
            assert shout(" no ") == "NO!"


        def test_pairs():
            assert list(pairs([1, 2, 3, 4])) == [(1, 2), (3, 4)]


        def test_box():
            box = Box()
            for thing in "abc":
                box.put(thing)
            assert len(box) == 2


        def test_big_box():
            box = Box(3)
            box.put(1)
            assert len(box) == 1
        """,
}


def sdist(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, text in files.items():
            data = textwrap.dedent(text).lstrip("\n").encode()
            info = tarfile.TarInfo(f"toy-1.0/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


DATA = sdist(FILES)
TOY = Package("toy", "1.0", hashlib.sha256(DATA).hexdigest(), "MIT", ("toy",))


@pytest.fixture(autouse=True, scope="module")
def toy() -> Iterator[None]:
    """A package of one file, in the list and in the cache."""
    place = cache_dir() / "swe" / "sdists"
    place.mkdir(parents=True, exist_ok=True)
    (place / TOY.filename).write_bytes(DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PACKAGES, "toy", TOY)
        yield


def test_a_changed_file_is_never_taken_from_an_older_compiled_one(tmp_path: Path) -> None:
    bench = Bench(TOY, tmp_path / "bench")
    text = bench.text["toy/__init__.py"]
    for new, passes in (("> high", True), ("< high", False), ("> high", True)):  # the same size each time
        tree = bench.fresh({"toy/__init__.py": text.replace("> high", new)})
        assert (bench.run(TOY, tree, timeout=60).results["tests/test_toy.py::test_clip[9-4]"] == "passed") == passes


# --- a whole build -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, toy: None) -> Path:
    """A set of three tasks of the toy package, built without interruption."""
    out = tmp_path_factory.mktemp("built")
    report = build(out, packages=["toy"], per_package=3, progress=False)
    assert report.tasks == {"toy": 3} and report.sha256 == hashlib.sha256(gzip.decompress(report.file.read_bytes())).hexdigest()
    assert "3 tasks in" in str(report) and "by difficulty:" in str(report) and sum(report.trials.values()) >= 3
    return out


def test_each_task_is_what_it_says(built: Path, tmp_path: Path) -> None:
    """With the bug just the named tests fail; the repair gives the sound file; the description is of it."""
    run, sound = Runner(tmp_path / "runner"), (unpack(TOY, tmp_path / "sound") / "toy/__init__.py").read_text()
    found = taskset.tasks(built / "tasks.jsonl.gz")
    assert len({t.id for t in found}) == 3
    for i, task in enumerate(found):
        tree = unpack(TOY, tmp_path / f"tree{i}")
        diffs.apply(task.base.bug, tree)
        assert (tree / "toy/__init__.py").read_text() != sound
        outcome = run(TOY, tree, timeout=60, seed=2)
        assert {id for id, r in outcome.results.items() if r == "failed"} == set(task.fail_to_pass)
        assert outcome.passed() == set(task.pass_to_pass) and 0 < len(task.fail_to_pass) <= 10 / 3
        diffs.apply(task.patch, tree)
        assert (tree / "toy/__init__.py").read_text() == sound
        assert task.hidden == ("tests/test_toy.py",) and task.source == "generated" and task.split == "train"
        assert "toy" in task.problem and SweTask.from_row(json.loads(json.dumps(task.as_row()))) == task


_SCRIPT = f"""
import sys
from pathlib import Path
from agentgym.envs.swe.build import build
from agentgym.envs.swe.packages import PACKAGES, Package
PACKAGES["toy"] = Package("toy", "1.0", {TOY.sha256!r}, "MIT", ("toy",))
build(Path(sys.argv[1]), packages=["toy"], per_package=3, progress=False)
"""


class Counting:
    """The plain runner, and how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, Counter[bool]()

    def __call__(
        self, package: Package, tree: Path, *, timeout: float, only: Collection[str] = (), trace: bool = False, most: int = 0, seed: int = 0
    ) -> Outcome:
        self.runs[bool(only)] += 1
        return Runner(self.folder / tree.parent.name)(package, tree, timeout=timeout, only=only, trace=trace, most=most, seed=seed)


def test_a_killed_builder_goes_on_where_it_was(built: Path, tmp_path: Path) -> None:
    """Killed in the middle, with half a line in its journal; then on with two workers: the same bytes, nothing tried twice."""
    out, journal = tmp_path / "out", tmp_path / "out/journal/toy.jsonl"
    process = subprocess.Popen([sys.executable, "-c", _SCRIPT, str(out)], env=dict(os.environ), start_new_session=True)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 3):
            time.sleep(0.02)
        with pytest.raises(DataError, match="another builder works in"):
            build(out, packages=["toy"], per_package=3, progress=False)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with open(out / "lock") as lock:  # a child of its own may still be on its way to another program, and hold the lock until then
        fcntl.flock(lock, fcntl.LOCK_EX)
    known = journal.read_bytes().count(b"\n")
    whole = (built / "journal/toy.jsonl").read_bytes().count(b"\n")
    assert 3 <= known < whole and not (out / "tasks.jsonl.gz").exists()
    with journal.open("ab") as f:
        f.write(b'{"bug": "0123')
    count = Counting(tmp_path)
    report = build(out, packages=["toy"], per_package=3, workers=2, progress=False, run=count)
    assert (out / "tasks.jsonl.gz").read_bytes() == (built / "tasks.jsonl.gz").read_bytes()
    lines = journal.read_text().splitlines()
    assert len({json.loads(line)["bug"] for line in lines}) == len(lines) >= whole
    assert count.runs[False] == len(lines) - known and report.tasks == {"toy": 3}
    count.runs.clear()
    build(out, packages=["toy"], per_package=3, progress=False, run=count)
    assert not count.runs  # all is known


def test_what_is_no_task(tmp_path: Path) -> None:
    """A bug that nobody notices, one that all notice, one that never ends, one that depends on the order of sets."""
    bench = Bench(TOY, tmp_path / "bench")
    base = bench.baseline()
    assert len(base.tests) == 10 and base.tests[5].startswith("tests/test_toy.py::test_clip[odd")
    text = bench.text["toy/__init__.py"]

    def trial(old: str, new: str) -> Trial:
        bug = builder.Bug((), diffs.unified({"toy/__init__.py": text}, {"toy/__init__.py": text.replace(old, new, 1)}))
        return bench.trial(bug, base)

    assert trial("Numbers", "Number").kind == "same"
    assert trial("def total", "def sum_of").kind == "broken"
    assert trial("if value < low:", "if value <= low or True:").kind == "valid"
    assert trial("if value < low:", "if value.x < low:").kind == "many"
    letter = next(a for a, b in zip(*map(_odd_hashes, (0, 1)), strict=True) if a and not b)
    assert trial('+ "!"', f'+ "!" * (1 + hash("{letter}") % 2)').kind == "unsteady"
    good = trial("return low", "return high")
    assert good.kind == "valid" and [base.tests[i] for i in good.failing] == ["tests/test_toy.py::test_clip[1-2]"]
    assert [(e.call, e.expected, e.actual) for e in good.examples] == [("clip(1, 2, 4)", ("value", "2"), ("value", "4"))]


def _odd_hashes(seed: int) -> list[str]:
    """Return the letters whose hash is odd in a process with this seed, '' for the others."""
    code = "print(','.join(c * (hash(c) % 2) for c in 'abcdefghijklmnop'))"
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip().split(",")


def test_a_bug_of_two_parts(tmp_path: Path) -> None:
    """Both changes, wherever the first one is; a change that is none of the source is no bug."""
    bench = Bench(TOY, tmp_path / "bench")
    text = bench.text["toy/__init__.py"]
    found = mutate.sites(text)
    one = next(s for s in found if s.operator == "compare_boundary" and s.scope == "clip")
    two = next(s for s in found if s.operator == "drop_call" and s.scope == "shout")
    for pair in ((one, two), (two, one)):
        bug = bench.bug(tuple(("toy/__init__.py", s) for s in pair))
        assert bug is not None
        after = bench.changed(bug)["toy/__init__.py"]
        assert ("value <= low" in after and ".upper()" in after and ".strip().upper()" not in after) or ".strip() +" in after
    assert bench.bug((("toy/__init__.py", mutate.Site(1, 1, "drop_call", 1, 9, "", "x")),)) is None


def test_the_journal_drops_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    journal = Journal(file)
    journal.add("a", Trial("valid", (1, 2), (), 0.5))
    journal.close()
    file.write_bytes(file.read_bytes() + b'{"bug": "b", "ki')
    journal = Journal(file)
    assert journal.trials == {"a": Trial("valid", (1, 2), (), 0.5)}
    journal.add("c", Trial("same"))
    journal.close()
    assert list(Journal(file).trials) == ["a", "c"]


def test_a_real_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest of the list, from its download to its first task."""
    try:
        packages.fetch(PACKAGES["first"])
    except DataError as e:
        pytest.skip(f"no package index: {e}")
    report = build(tmp_path, packages=["first"], per_package=1, progress=False)
    (task,) = taskset.tasks(report.file)
    assert report.tasks == {"first": 1} and task.repo == "first" and task.hidden == ("test_first.py",)
    tree = unpack(PACKAGES["first"], tmp_path / "tree")
    sound = (tree / "first.py").read_text()
    diffs.apply(task.base.bug, tree)
    diffs.apply(task.patch, tree)
    assert (tree / "first.py").read_text() == sound and "first" in task.problem


def test_wrong_requests(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no package 'frist' in the task set\. Did you mean 'first'"):
        build(tmp_path, packages=["frist"])
    with pytest.raises(DataError, match="per_package=0"):
        build(tmp_path, per_package=0)


@pytest.mark.parametrize(
    ("failing", "bugs", "level"), [(1, 1, "hard"), (2, 1, "medium"), (5, 1, "medium"), (6, 1, "easy"), (9, 2, "medium"), (1, 2, "hard")]
)
def test_difficulty(failing: int, bugs: int, level: str) -> None:
    assert difficulty(failing, bugs) == level


def test_the_commands(built: Path, grading: Backend, command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """A build in sandboxes gives the very file that one in plain processes gave; its tasks are valid; one whose fix repairs nothing is named."""
    where = ("--sandbox", grading.name)
    code, out, err = command("tasks", "build", "swe", "--out", "b", "--package", "toy", "--per-package", "3", *where)
    assert code == 0 and "3 tasks in b/tasks.jsonl.gz" in out and "agentgym check swe --tasks b/tasks.jsonl.gz" in out, err
    assert (tmp_path / "b" / "tasks.jsonl.gz").read_bytes() == (built / "tasks.jsonl.gz").read_bytes()
    code, out, err = command("check", "swe", "--tasks", "b/tasks.jsonl.gz", *where, "--workers", "2")
    assert code == 0 and out == "3 of 3 tasks are valid; 0 invalid, 0 damaged, 0 without an answer\n", out + err
    rows = [task.as_row() for task in taskset.tasks(built / "tasks.jsonl.gz")]
    rows[1]["patch"] = diffs.unified({"README.md": "# toy\n"}, {"README.md": "# toys\n"})
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"id": 1}\n', "utf-8")
    code, out, _ = command("check", "swe", "--tasks", "own.jsonl", *where)
    assert code == 1 and "2 of 4 tasks are valid; " in out and rows[1]["id"] in out and "own.jsonl" in out
    assert command("check", "toy", "--tasks", "x")[0] == 1 and command("check", "swe", "--tasks", "b/tasks.jsonl.gz", "--workers", "0")[0] == 1
