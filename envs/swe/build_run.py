"""Run a package's tests in a process of its own and read each test's result: the plain runner of the builder.

What runs here are pinned, well-known packages with one small change: trusted code, but code that may loop, fill the memory or the disk. So there are
limits and a time-out, and the whole process group is killed at the end. An agent's code never runs here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agentgym.errors import DataError

from .packages import Package

HERE = Path(__file__).parent
PLUGIN = ("swe_probe", "swe_tracer", "swe_names", "swe_objects", "swe_values", "swe_statement")
_TOOLS = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
_TAIL = 2000  # letters of output that are kept


class Outcome(NamedTuple):
    """What a run of tests gave.

    results   by test id: "passed", "failed", "skipped" (also where a failure was expected), "none" where it did not come to its end
    records   of each test: id, result, and with trace `calls` and `failure`; see swe_tracer.py
    broken    files that could not be collected → the end of the reason
    finished  the run came to its end by itself
    """

    results: dict[str, str]
    records: list[dict[str, Any]]
    broken: dict[str, str]
    finished: bool
    timed_out: bool
    seconds: float
    output: str

    def passed(self) -> set[str]:
        """Return the ids of the tests that passed."""
        return {id for id, result in self.results.items() if result == "passed"}


class RunTests(Protocol):
    """Runs the tests of a tree: the plain runner below, or one in a sandbox."""

    def __call__(
        self, package: Package, tree: Path, *, timeout: float, only: Collection[str] = (), trace: bool = False, most: int = 0, seed: int = 0
    ) -> Outcome:
        """Run all tests, or those of `only`; stop after `most` failures (0: never). `seed` is PYTHONHASHSEED: an order of sets."""
        ...


class Runner:
    """Runs tests with this interpreter, pytest and nothing else on the path: no installed copy of the package, no optional dependency.

    folder   where it works
    """

    def __init__(self, folder: Path, *, python: str = sys.executable) -> None:
        self.folder, self.python = folder, python
        self.tools = folder / "tools"
        if not self.tools.is_dir():
            self.tools.mkdir(parents=True)
            for name in _TOOLS:
                _link(name, self.tools)
        for name in PLUGIN:
            shutil.copyfile(HERE / f"{name}.py", self.tools / f"{name}.py")

    def __call__(
        self, package: Package, tree: Path, *, timeout: float, only: Collection[str] = (), trace: bool = False, most: int = 0, seed: int = 0
    ) -> Outcome:
        """See RunTests."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-", ignore_cleanup_errors=True) as scratch:
            place = Path(scratch)
            report = place / "report.jsonl"
            env = self._environment(package, tree, place, report, timeout) | {"PYTHONHASHSEED": str(seed)}
            if only:
                (place / "only.jsonl").write_text("".join(json.dumps(id) + "\n" for id in sorted(only)), "utf-8")
                env["SWE_PROBE_ONLY"] = str(place / "only.jsonl")
            if trace:
                env["SWE_PROBE_TRACE"] = os.pathsep.join(str(tree / s) for s in package.sources)
            command = probed(package, self.python, most)
            command[1:1] = ["-S"]  # no site-packages
            return _finished(command, tree, env, report, place / "output", timeout)

    def _environment(self, package: Package, tree: Path, place: Path, report: Path, timeout: float) -> dict[str, str]:
        (place / "tmp").mkdir()
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(place),
            "TMPDIR": str(place / "tmp"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONPATH": os.pathsep.join([str(tree / package.path), str(self.tools)]),
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",  # a changed file of the same size and time would be taken from an older compiled one
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "SWE_PROBE_OUT": str(report),
            "SWE_PROBE_CPU": str(int(timeout) + 1),
        }


def probed(package: Package, python: str, most: int = 0) -> list[str]:
    """Return the command that runs a package's tests with the plugin that writes the report; it stops after `most` failures (0: never)."""
    return [*package.test_command(python), "-p", "swe_probe", "-q", "--tb=no", "-W", "ignore", *([f"--maxfail={most}"] if most else [])]


def _link(module: str, folder: Path) -> None:
    """Make a module importable from a folder."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        if module in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging"):
            raise DataError(f"building tasks needs pytest, but {module} cannot be imported: pip install pytest")
        return
    source = Path(spec.origin)
    source = source.parent if source.name == "__init__.py" else source
    (folder / source.name).symlink_to(source)


def _finished(command: Sequence[str], tree: Path, env: dict[str, str], report: Path, output: Path, timeout: float) -> Outcome:
    start, timed_out = time.monotonic(), False
    with open(output, "wb") as out:
        process = subprocess.Popen(command, cwd=tree, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    text = output.read_bytes()[-_TAIL:].decode("utf-8", "replace")
    return outcome(report.read_bytes() if report.is_file() else b"", timed_out, time.monotonic() - start, text)


def outcome(report: bytes, timed_out: bool, seconds: float, output: str) -> Outcome:
    """Return what the plugin's report says; a last line that was cut off is not there."""
    records, broken, finished = [], {}, False
    for line in report.split(b"\n"):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if "id" in data:
            records.append(data)
        elif "broken" in data:
            broken[data["broken"]] = data["why"]
        elif "exit" in data:
            finished = True
    return Outcome({r["id"]: r["result"] for r in records}, records, broken, finished, timed_out, seconds, output)
