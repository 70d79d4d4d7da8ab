"""A sandbox with the base tree, the agent's changes and the hidden tests, in which pytest runs; and what its report says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agentgym.errors import DataError, EnvError

from . import diffs, packages, repo, twins
from .changes import Changes
from .repo import BoxPlace, FolderPlace, Place
from .sandbox import TREE, Backend, Limits, Sandbox
from .task import SweTask

_HERE = Path(__file__).parent
SECONDS = {"package": 60.0, "image": 1800.0}  # of processor time for one run of tests
_WALL = 3  # seconds on the clock for one of the processor: the machine may be busy
_OUTPUT = 16 << 20
_VARIABLES = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "TZ": "UTC"}


@dataclass
class Run:
    """What one run of tests gave.

    results  node id → (passed, failed, skipped or none; how its failure ends)
    cheat    why the results are not to be believed, "" where they are
    end      how the run ended: "", "crash" or "late"
    said     the end of what it wrote, or why a file could not be collected
    """

    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    cheat: str = ""
    end: str = ""
    said: str = ""

    def passed(self, test: str) -> bool:
        """Return whether a test passed; one that is absent has not."""
        return self.results.get(test, ("absent", ""))[0] == "passed"


class Bench:
    """The grading sandbox of one task and one set of changes.

    files   the test files: those of the task's node ids, else those that bring the hidden tests
    before  the content of the changed files before the change
    Raises EnvError where the sandbox fails, DataError where the task's own diffs do not fit.
    """

    def __init__(
        self, backend: Backend, task: SweTask, changes: Changes, *, limits: Limits, seconds: float | None, hold: Callable[[Sandbox], Sandbox]
    ) -> None:
        self._task, self._changes = task, changes
        self._cpu = seconds or SECONDS["image" if task.image else "package"]
        self._scratch, self._used = repo.scratch(), False
        self.before: dict[str, bytes | None] = {}
        self.files, self._settings = test_files(task), ""
        folder = self._scratch.__enter__()
        self._box: Sandbox | None = None
        try:
            if task.image:
                self._box = hold(backend.open(None, image=task.image, limits=limits, env={"PATH": repo.IMAGE_PATH}))
                repo.apply(task.base.bug, BoxPlace(self._box))
                self._fill(BoxPlace(self._box))
                self._box.run("chmod u+x -- /dev/null " + " ".join(shlex.quote(f"./{p}") for p in sorted(changes.run)))
                self._box.snapshot()
            else:
                repo.broken(task, folder)
                self._fill(FolderPlace(folder))
                for path in changes.run & changes.files.keys():
                    (folder / path).chmod(0o755)
                self._box = hold(backend.open(folder, limits=limits))
            self.root = self._box.tree
            self._python = python_of(self._box)
        except BaseException:
            self.close()
            raise
        name = secrets.token_hex(6)
        self._place = f"/tmp/{name}" if self.root == TREE else f"{PurePosixPath(self.root).parent}/home/{name}"

    def close(self) -> None:
        """Close the sandbox."""
        if self._box is not None:
            self._box.close()
        self._scratch.__exit__(None, None, None)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _fill(self, place: Place) -> None:
        """Apply the changes, then bring the hidden tests; see where pytest's settings are."""
        files = self._changes.files
        try:
            self.before = {path: place.read(path) for path in files}
            for path in [*(p for p, data in files.items() if data is None), *(p for p, data in files.items() if data is not None)]:
                data = files[path]
                try:
                    place.remove(path) if data is None else place.write(path, data)
                except (DataError, NotADirectoryError, IsADirectoryError, FileExistsError) as e:
                    self._changes.drop(path, f"it cannot stand there: {e}")
            repo.apply(self._task.test_patch, place)
            for path, text in self._task.test_files.items():
                place.write(path, text.encode())
            self._settings = _settings(place)
        except OSError as e:
            raise EnvError(f"cannot fill the grading sandbox: {e}") from e

    def text(self, path: str) -> str | None:
        """Return a file as it is before the tests run, None where there is none."""
        self._renew()
        assert self._box
        try:
            return self._box.read(path, 4 << 20).decode("utf-8", "replace")
        except OSError:
            return None

    def _renew(self) -> None:
        """Make the sandbox as new where something ran in it."""
        assert self._box
        if self._used:
            self._box.reset()
            self._used = False

    def run(self, files: Sequence[str], only: Sequence[str] | None, extra: Mapping[str, str]) -> Run:
        """Run tests of some files in the sandbox as new.

        only   their node ids; None: all
        extra  path → text of files that are written before
        """
        assert self._box
        self._renew()
        self._used = True
        own = {f"{self._place}/{name}": (_HERE / name).read_text("utf-8") for name in ("inside_supervisor.py", "inside_worker.py")}
        plan = json.dumps(self._plan(files, only, extra))
        try:
            for path, text in {**extra, **own, f"{self._place}/pytest.ini": "[pytest]\n", f"{self._place}/plan.json": plan}.items():
                self._box.write(path, text.encode("utf-8", "surrogateescape"))
        except OSError as e:
            raise EnvError(f"cannot write into the grading sandbox: {e}") from e
        command = f"exec {shlex.quote(self._python)} -I -S {self._place}/inside_supervisor.py {self._place}/plan.json"
        done = self._box.run(command, timeout=_WALL * self._cpu + 60, output=_OUTPUT)
        return read_report(done.output, done.timed_out, f"status {done.code}")

    def _plan(self, files: Sequence[str], only: Sequence[str] | None, extra: Mapping[str, str]) -> dict[str, Any]:
        settings = f"{self.root}/{self._settings}" if self._settings else f"{self._place}/pytest.ini"
        args = ["-c", settings, "--rootdir", self.root, "-p", "no:cacheprovider", "-q", "--tb=no", "--color=no", "--continue-on-collection-errors"]
        path, start = [self.root], dict(_VARIABLES)
        if not self._task.image:  # as when the tests were measured; see Package.test_command and build_run.py
            args += ["-o", "addopts=", "-W", "ignore"]
            start["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            path.append(os.path.normpath(os.path.join(self.root, packages.package(self._task.base.package).path)))
        path = list(dict.fromkeys(path))
        guarded = {f"{self.root}/{p}" for p in (*self.files, *extra, *self._task.test_files)} | {settings}
        return {
            "root": self.root,
            "python": self._python,
            "worker": f"{self._place}/inside_worker.py",
            "args": [*args, *(f"{self.root}/{f}" for f in files)],
            "only": None if only is None else list(only),
            "path": path,
            "start": start,
            "env": {"PYTHONPATH": os.pathsep.join(path)},
            "guarded": sorted(guarded),
            "cpu": self._cpu,
            "seconds": _WALL * self._cpu,
        }


def test_files(task: SweTask) -> list[str]:
    """Return the files (or the folder) in which a task's tests are, sorted."""
    if task.ids == "pytest":
        return sorted({twins.split_id(t)[0] for t in (*task.fail_to_pass, *task.pass_to_pass)})
    if task.source == "r2e-gym" and not task.test_files:
        return ["r2e_tests"]  # a folder of the image
    brought = {f.path for f in diffs.parse(task.test_patch)} | set(task.test_files)
    return sorted(p for p in brought if p.endswith(".py") and PurePosixPath(p).name not in ("conftest.py", "__init__.py"))


def unsupported(task: SweTask) -> str:
    """Return why a task cannot be graded here, "" where it can."""
    if task.repo.lower() == "django/django":
        return "Django's tests have a runner of their own, and its names for them are not pytest's"
    return "" if test_files(task) else "nothing says in which files its tests are"


def python_of(box: Sandbox) -> str:
    """Return the Python of a sandbox in which nothing of the agent's has run. Raises EnvError where there is none."""
    done = box.run("command -v python3 || command -v python", timeout=60)
    if done.code != 0 or not done.output.startswith("/"):
        raise EnvError(f"the sandbox has no Python to run tests with: {done.output.strip()[-300:]}")
    return done.output.splitlines()[0]


def _settings(place: Place) -> str:
    """Return the file with pytest's settings that the repository itself has, "" for none; found as pytest does."""
    for name in ("pytest.ini", ".pytest.ini"):
        if place.read(name) is not None:
            return name
    for name, section in (("pyproject.toml", r"^\[tool\.pytest"), ("tox.ini", r"^\[pytest\]"), ("setup.cfg", r"^\[tool:pytest\]")):
        if re.search(section, (place.read(name) or b"").decode("utf-8", "replace"), re.MULTILINE):
            return name
    return ""


def read_report(output: str, timed_out: bool, status: str) -> Run:
    """Return what the supervisor said. Raises EnvError where it did not get so far that any tested code ran."""
    first = re.match(r"KEY ([0-9a-f]{32})\n", output)
    if not first:
        raise EnvError(f"the tests cannot be started in the grading sandbox ({status}): {output.strip()[-500:]}")
    key = bytes.fromhex(first[1])
    for line in reversed(output.splitlines()):
        found = re.fullmatch(r"REPORT ([0-9a-f]{64}) ([A-Za-z0-9+/=]+)", line)
        if not found:
            continue
        try:
            data = base64.b64decode(found[2])
        except ValueError:
            continue
        if hmac.compare_digest(hmac.new(key, data, hashlib.sha256).hexdigest(), found[1]):
            return _run_of(json.loads(zlib.decompress(data)))
    return Run(end="late" if timed_out else "crash", said="no report came from the grading sandbox")


def _run_of(report: Mapping[str, Any]) -> Run:
    """Return the results of a report that is signed, and what speaks against them. Raises EnvError where pytest was not there to begin with."""
    if not report["ready"]:
        raise EnvError(f"pytest does not start in the grading sandbox (status {report['code']}): {str(report['tail']).strip()[-500:]}")
    run = Run({test: (result, why) for test, (result, why) in report["tests"].items()}, said=str(report["tail"]).strip()[-300:])
    run.end = "late" if report["late"] else "crash" if report["exit"] is None else ""
    if report["odd"]:
        run.cheat = f"somebody else wrote to the report: {report['odd'][0]}"
    elif report["touched"]:
        run.cheat = f"files of the tests were touched while they ran: {', '.join(map(os.path.basename, report['touched'][:3]))}"
    elif report["changed"]:
        run.cheat = f"functions of pytest or Python were replaced: {', '.join(report['changed'][:3])}"
    elif not run.end and report["exit"] != report["code"]:
        run.cheat = f"pytest ended with {report['exit']}, its process with {report['code']}"
    if report["broken"]:
        run.said = f"{report['broken'][0][0]}: {report['broken'][0][1].strip()[-250:]}"
    return run
