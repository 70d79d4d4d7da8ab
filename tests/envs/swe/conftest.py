"""A work tree, a sandbox of each backend that a module's tests share (each gets it as new), and a look at what sandboxes left on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe.sandbox import Backend, Limits, Sandbox, owner
from agentgym.envs.swe.sandbox.bubblewrap import Bubblewrap
from agentgym.envs.swe.sandbox.docker import Docker

FILES = {
    "README.md": "# wörld\n",
    "pkg/__init__.py": "",
    "pkg/core.py": "def double(x):\n    return 2 * x\n",
    "a b/ü.txt": "ünïcode\n",
    "run.sh": "#!/bin/sh\necho ran\n",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all that opens sandboxes in one of several workers: whoever starts another process there removes what dead owners left."""
    for item in items:
        if "machine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("sandboxes"))


class Machine:
    """What there is of sandboxes on this machine."""

    @staticmethod
    def usable(name: str) -> Backend:
        """Return a backend, or skip the test and say what is missing."""
        kind = {"docker": Docker, "bubblewrap": Bubblewrap}[name]()
        if missing := kind.available():
            pytest.skip(f"{name} is not tested: {missing}")
        return kind

    @staticmethod
    def processes(word: str) -> list[int]:
        """Return the processes with a word in their command line, but this one."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if word.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    @staticmethod
    def containers(pid: int) -> list[str]:
        """Return the engine's containers of an owner; none where no engine answers."""
        if Docker().available():
            return []
        from agentgym.envs.swe.sandbox.engine import client

        with contextlib.closing(client()) as api:
            seen = api.containers(all=True, filters={"label": "agentgym.owner"})
        return [c["Id"] for c in seen if c["Labels"]["agentgym.owner"].startswith(f"{pid}-")]

    @classmethod
    def left_of(cls, pid: int) -> list[str]:
        """Return all that there still is of a process's sandboxes: containers, folders, control groups, mounts, processes."""
        found = [f"container {name}" for name in cls.containers(pid)]
        found += [f"folder {place}" for place in owner.base().glob(f"{pid}-*/*")]
        found += [f"group {place}" for place in Path("/sys/fs/cgroup").glob(f"**/agentgym-{pid}-*")]
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
        found += [f"mount {place}" for place in mounts if place.startswith(f"{owner.base()}/{pid}-")]
        return found + [f"process {number}" for number in cls.processes(f"{owner.base()}/{pid}-")]

    @staticmethod
    def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
        """Return whether something comes true within some seconds."""
        give_up = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > give_up:
                return False
            time.sleep(0.02)
        return True


@pytest.fixture(scope="session")
def machine() -> type[Machine]:
    return Machine


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small work tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, "utf-8")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("README.md")
    (tree / "empty").mkdir()
    return tree


@pytest.fixture(scope="module", params=["docker", "bubblewrap"])
def engine(request: pytest.FixtureRequest, machine: type[Machine]) -> Backend:
    """Each backend that isolates."""
    return machine.usable(request.param)


@pytest.fixture(scope="module")
def shared_box(engine: Backend, tree: Path) -> Iterator[Sandbox]:
    with engine.open(tree, limits=Limits(memory_mb=512, disk_mb=64, pids=64)) as sandbox:
        yield sandbox


@pytest.fixture
def box(shared_box: Sandbox) -> Sandbox:
    """A sandbox in its clean state: 512 MB of memory, 64 MB of disk, 64 processes."""
    shared_box.reset()
    return shared_box


# --- a tiny package with a bug, for what is built on sandboxes: its sdist lies in the cache, so nothing is downloaded

TALLY = {
    "tally/__init__.py": '''"""Sums."""


def total(numbers):
    """Return the sum of some numbers."""
    result = 0
    for n in numbers:
        result += n
    return result


def mean(numbers):
    """Return the mean of some numbers."""
    numbers = list(numbers)
    return total(numbers) / len(numbers)


def label(name):
    """Return a name in brackets."""
    return f"<{name}>"
''',
    "tests/test_total.py": """import unittest

import pytest

from tally import mean, total


def test_some():
    assert total([1, 2]) == 3


@pytest.mark.parametrize("numbers, expected", [([4], 4), ([5, -2], 3)])
def test_each(numbers, expected):
    assert total(numbers) == expected


def test_nothing():
    assert total([]) == 0


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 6]), 3)
""",
    "tests/test_label.py": "import tally\n\n\ndef test_label():\n    assert tally.label('a') == '<a>'\n",
    "README.md": "# tally\n",
}
BUG = ("        result += n\n", "        result -= n\n")


@pytest.fixture(scope="session")
def tally(own_cache: None) -> Iterator[Any]:
    """The task of the tiny package: `total` subtracts."""
    from agentgym.cache import cache_dir
    from agentgym.envs.swe import diffs, packages
    from agentgym.envs.swe.task import Base, SweTask

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in TALLY.items():
            info = tarfile.TarInfo(f"tally-1.0/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    package = packages.Package("tally", "1.0", hashlib.sha256(out.getvalue()).hexdigest(), "MIT", ("tally",))
    file = cache_dir() / "swe" / "sdists" / package.filename
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(out.getvalue())
    good = {"tally/__init__.py": TALLY["tally/__init__.py"]}
    bad = {"tally/__init__.py": good["tally/__init__.py"].replace(*BUG)}
    fail = ("test_some", "test_each[numbers0-4]", "test_each[numbers1-3]", "MeanTest::test_mean")
    task = SweTask(
        "tally-1",
        "generated",
        "tally",
        Base(package="tally", version="1.0", sha256=package.sha256, bug=diffs.unified(good, bad)),
        "`tally.total([1, 2])` gives -3; expected 3.",
        tuple(f"tests/test_total.py::{name}" for name in fail),
        ("tests/test_total.py::test_nothing", "tests/test_label.py::test_label"),
        diffs.unified(bad, good),
        hidden=("tests/test_total.py",),
        difficulty="easy",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(packages.PACKAGES, "tally", package)
        yield task


@pytest.fixture(scope="session")
def grading(machine: type[Machine]) -> Backend:
    """A backend for tests of what does not depend on which one it is: the quickest that there is."""
    for name in ("bubblewrap", "docker"):
        kind: Backend = {"docker": Docker, "bubblewrap": Bubblewrap}[name]()
        if kind.available() is None:
            return kind
    return machine.usable("bubblewrap")  # skips, and says why


class Endpoint:
    """An OpenAI-compatible endpoint that replays recorded conversations: its answer is the one that follows as many answers as it is shown.

    conversations  what it says, by a text that the first message holds; "" is in all
    asked          the messages of all requests
    hold           episodes (by a word of their first message) that get no answer from some turn on
    """

    def __init__(self) -> None:
        self.conversations: dict[str, list[str]] = {}
        self.asked: list[list[dict[str, str]]] = []
        self.hold: tuple[str, int] | None = None
        self.held = threading.Event()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
                endpoint.asked.append(messages)
                text = endpoint.answer(messages)
                data = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, messages: list[dict[str, str]]) -> str:
        first, turn = messages[0]["content"], sum(m["role"] == "assistant" for m in messages)
        if self.hold and self.hold[0] in first and turn == self.hold[1]:
            self.held.set()
            time.sleep(600)
        says = max(((key, texts) for key, texts in self.conversations.items() if key in first), key=lambda found: len(found[0]))[1]
        return says[turn] if turn < len(says) else "I have nothing more to say."

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()
