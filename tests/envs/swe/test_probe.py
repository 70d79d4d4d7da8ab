"""One run of tests as the builder sees it: each test's result, limits, and what the test called."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.envs.swe.build_run import Outcome, Runner
from agentgym.envs.swe.packages import Package

TOY = Package("toy", "1.0", "0" * 64, "MIT", ("toy",))
Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return what runs a file of tests against a module, from texts."""

    def go(tests: str, module: str = "", **options: object) -> Outcome:
        tree = tmp_path / "tree"
        (tree / "toy").mkdir(parents=True, exist_ok=True)
        (tree / "tests").mkdir(exist_ok=True)
        (tree / "toy/__init__.py").write_text(textwrap.dedent(module))
        (tree / "tests/test_x.py").write_text(textwrap.dedent(tests))
        return Runner(tmp_path / "runner")(TOY, tree, **{"timeout": 60.0, **options})  # type: ignore[arg-type]

    return go


ALL_KINDS = """
    import pytest, unittest

    def test_good(): pass
    def test_bad(): assert 0
    @pytest.mark.skip
    def test_skipped(): pass
    @pytest.mark.xfail
    def test_expected(): assert 0
    @pytest.mark.xfail
    def test_unexpected(): pass
    @pytest.fixture
    def broken(): raise ValueError
    def test_setup(broken): pass
    @pytest.fixture
    def late():
        yield
        raise ValueError
    def test_teardown(late): pass
    class TestCase(unittest.TestCase):
        def test_sub(self):
            for i in range(2):
                with self.subTest(i=i):
                    self.assertEqual(i, 0)
    @pytest.mark.parametrize("x", ["a::b[c]", "ü \\n", "/"])
    def test_ids(x): pass
"""


def test_results_by_id(run: Run) -> None:
    """Passed is what passed from its set-up to its end and was not expected to fail; an id may have any letters."""
    found = run(ALL_KINDS)
    results = {id.removeprefix("tests/test_x.py::"): result for id, result in found.results.items()}
    ids = [id for id in results if id.startswith("test_ids")]
    assert len(ids) == 3 and all(results.pop(id) == "passed" for id in ids)
    assert results == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_expected": "skipped",
        "test_unexpected": "skipped",
        "test_setup": "failed",
        "test_teardown": "failed",
        "TestCase::test_sub": "failed",
    }
    assert found.finished and not found.timed_out and not found.broken
    some = run(ALL_KINDS, only=[f"tests/test_x.py::{ids[0]}", "tests/test_x.py::test_bad"])
    assert set(some.results) == {f"tests/test_x.py::{ids[0]}", "tests/test_x.py::test_bad"}
    assert sum(r == "failed" for r in run(ALL_KINDS, most=1).results.values()) == 1


def test_a_file_that_cannot_be_read_and_a_run_that_ends_early(run: Run) -> None:
    found = run("import toy.none\ndef test_a(): pass\n")
    assert list(found.broken) == ["tests/test_x.py"] and "toy.none" in found.broken["tests/test_x.py"] and not found.results
    found = run("import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n")
    assert found.results == {"tests/test_x.py::test_a": "passed"} and not found.finished


def test_nothing_outlives_its_time(run: Run, tmp_path: Path) -> None:
    """A loop, and the children that it started; what was done before is known. Neither memory nor disk are without end."""
    tests = f"""
        import subprocess, sys, time
        def test_a(): pass
        def test_b():
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
            while True: time.sleep(0.01)
    """
    start = time.monotonic()
    found = run(tests, timeout=6.0)
    assert found.timed_out and not found.finished and found.results == {"tests/test_x.py::test_a": "passed"}
    assert time.monotonic() - start < 30
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    greedy = run(
        f"""
        def test_memory(): bytearray(6 << 30)
        def test_disk():
            with open({str(tmp_path / "large")!r}, "wb") as f: f.truncate(1 << 30)
        """
    )
    assert list(greedy.results.values()) == ["failed", "failed"]


def test_only_the_package_and_pytest_are_there(run: Run) -> None:
    """No other package of this environment, above all no installed copy of the one under test; a clean environment."""
    tests = """
        import importlib.util, os, sys
        def test_path():
            assert importlib.util.find_spec("numpy") is None and importlib.util.find_spec("agentgym") is None
            assert not any("site-packages" in p for p in sys.path)
            assert os.environ["HOME"] == os.path.dirname(os.environ["TMPDIR"]) and "AGENTGYM_CACHE" not in os.environ
            assert os.environ["PYTHONHASHSEED"] == "3"
    """
    assert list(run(tests, seed=3).results.values()) == ["passed"]


# --- what a test called --------------------------------------------------------------------------------------------

MODULE = """
    class Box:
        def __init__(self, size=2): self.size, self.things = size, []
        def put(self, thing): self.things.append(thing)
        def __len__(self): return len(self.things)
        @property
        def full(self): return len(self) == self.size
        @classmethod
        def of(cls, *things):
            box = cls(len(things))
            for thing in things: box.put(thing)
            return box
    def double(x, times=2, *, deep=False): return x * times
    def outer(x): return double(x)
    def fail(x): raise KeyError(x)
    def count(n):
        for i in range(n): yield i
    def apply(f, x): return f(x)
    def adder(n):
        def add(x): return x + n
        return add
    def hide(x): return object()
"""
CALLS = """
    import toy
    from toy import Box, adder, apply, count, double, fail, hide, outer

    class Mine(Box): pass

    def helper(x): return double(x, deep=True)

    def test_calls():
        double("a")
        double(1, 3)
        helper(5)
        outer(1)
        try: fail("k")
        except KeyError: pass
        list(count(2))
        apply(lambda x: x + 1, 4)
        apply(helper, 4)
        add = adder(3)
        add(4)
        hide(None)
        Mine().put(1)

    def test_objects():
        box = Box()
        box.put("a")
        len(box)
        box.full
        Box.of(1, 2)
        assert box.size == 3
"""


def test_the_calls_that_a_test_makes(run: Run) -> None:
    """Its own calls only, with what came of them; defaults are left out; objects are the calls that made them."""
    found = run(CALLS, MODULE, trace=True)
    calls, objects = (r["calls"] for r in found.records)
    assert [(c["call"], c["result"]) for c in calls if c["clear"]] == [
        ("double('a')", ["value", "'aa'"]),
        ("double(1, 3)", ["value", "3"]),
        ("double(5, deep=True)", ["value", "10"]),
        ("outer(1)", ["value", "2"]),
        ("fail('k')", ["error", "KeyError", "k"]),
        ("count(2)", ["items", ["0", "1"]]),
        ("apply(lambda x: x + 1, 4)", ["value", "5"]),
        ("adder(3)", ["object", "function"]),
        ("function(4)", ["value", "7"]),
        ("hide(None)", ["object", "object"]),
    ]
    made = next(c for c in calls if c["call"] == "function(4)")
    assert made["setup"] == ["function = adder(3)"] and made["name"] == "toy.adder"
    assert [c["call"] for c in calls if not c["clear"]] == ["apply(helper, 4)"]
    assert {c["name"] for c in calls} >= {"toy.double", "toy.fail"}
    assert [(c["call"], c["setup"], c["result"]) for c in objects] == [
        ("Box()", [], ["object", "Box"]),
        ("Box().put('a')", [], ["value", "None"]),
        ("len(box)", ["box = Box()", "box.put('a')"], ["value", "1"]),
        ("box.full", ["box = Box()", "box.put('a')"], ["value", "False"]),
        ("Box.of(1, 2)", [], ["object", "Box"]),
    ]
    said = found.records[1]["failure"]
    assert said["type"] == "AssertionError" and said["compared"] == ["==", "2", "3"]
    assert said["statement"]["left"] == "box.size" and said["statement"]["setup"] == ["box = Box()", "box.put('a')"]
