"""Fixtures of the search-QA tests: a small corpus, and real servers in processes of their own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest

TOPICS = ("harbour", "mountain", "violin", "parliament", "glacier", "orchard", "lantern", "copper")
SERVE = "import sys; from agentgym.envs.searchqa.server import serve; serve(sys.argv[1], port=int(sys.argv[2]), workers=int(sys.argv[3]))"


@pytest.fixture(scope="session")
def searchqa_shared(shared: Callable[[str, str], Path]) -> Path:
    """The folder with real rows."""
    return shared("data/qa", "question-answering data")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 documents: document i is the only one that names `number{i}x`, and one of fifty about its topic."""
    file = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [{"id": str(i), "contents": f'"Page {i}"\nAbout the {TOPICS[i % 8]} number{i}x, {"very " * (i % 5)}old.'} for i in range(400)]
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return file


class Server:
    """A search server in a process of its own; it can be killed and started again on the same port."""

    def __init__(self, corpus: Path, port: int, workers: int = 1) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-c", SERVE, str(corpus), str(port), str(workers)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            assert self.process.poll() is None, "the server ended by itself"
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def launch(corpus: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server of the corpus; all are stopped at the end."""
    servers: list[Server] = []

    def start(workers: int = 1) -> Server:
        servers.append(Server(corpus, free_port(), workers))
        servers[-1].wait()
        return servers[-1]

    yield start
    for server in servers:
        server.process.terminate()
        server.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def server(corpus: Path) -> Iterator[Server]:
    """One server for the tests that leave it as it is."""
    found = Server(corpus, free_port())
    found.wait()
    yield found
    found.kill()
