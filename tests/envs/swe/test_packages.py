"""The pinned packages: found through pip's own settings in every kind of index, checked by hash, unpacked without what a release adds."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentgym.envs.swe import packages
from agentgym.envs.swe.packages import PACKAGES, Package, fetch, is_test, package, pip_settings, sources, unpack
from agentgym.errors import DataError

FILES = {
    "toy-1.0/toy/__init__.py": "x = 1\n",
    "toy-1.0/toy/tests/test_toy.py": "def test(): pass\n",
    "toy-1.0/toy/_version.py": "version = '1.0'\n",
    "toy-1.0/.git/HEAD": "ref: main\n",
    "toy-1.0/.idea/workspace.xml": "<x/>\n",
    "toy-1.0/PKG-INFO": "Name: toy\n",
    "toy-1.0/toy.egg-info/PKG-INFO": "Name: toy\n",
    "toy-1.0/toy/__pycache__/a.pyc": "\0",
    "toy-1.0/setup.py": "raise SystemExit('a setup.py was run')\n",
}


def sdist() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("toy-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


DATA = sdist()
TOY = Package("toy", "1.0", hashlib.sha256(DATA).hexdigest(), "MIT", ("toy",))
Serve = Callable[[dict[str, tuple[str, bytes]]], str]


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and no settings of pip but those of the test."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a maker of web servers: path → (content type, bytes); → their address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def make(pages: dict[str, tuple[str, bytes]]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, data = pages.get(self.path, ("", b""))
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def html(link: str) -> tuple[str, bytes]:
    return "text/html", f'<html><a href="toy-0.9.tar.gz">old</a><a href="{link}">toy-1.0.tar.gz</a></html>'.encode()


def test_an_index_of_links(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve({"/simple/toy/": html("../../files/toy-1.0.tar.gz#sha256=0"), "/files/toy-1.0.tar.gz": ("x/y", DATA)})
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
    file = fetch(TOY)
    assert file.read_bytes() == DATA and file.name == "toy-1.0.tar.gz"
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetch(TOY) == file  # from the cache
    file.write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"cannot get toy-1.0.tar.gz .*127.0.0.1:9/simple: ConnectError"):
        fetch(TOY)


def test_an_index_in_json(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"/f/toy-1.0.tar.gz": ("x/y", DATA)}
    address = serve(pages)
    listing = {"files": [{"filename": "toy-0.9.tar.gz", "url": "x"}, {"filename": "toy-1.0.tar.gz", "url": f"{address}/f/toy-1.0.tar.gz"}]}
    pages["/toy/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(listing).encode())
    monkeypatch.setenv("PIP_INDEX_URL", address)
    assert fetch(TOY).read_bytes() == DATA


def test_an_index_in_a_folder(tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first index does not have it, the second does."""
    (tmp_path / "simple/toy").mkdir(parents=True)
    (tmp_path / "simple/toy/index.html").write_bytes(html("toy-1.0.tar.gz")[1])
    (tmp_path / "simple/toy/toy-1.0.tar.gz").write_bytes(DATA)
    monkeypatch.setenv("PIP_INDEX_URL", serve({}))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{tmp_path}/simple")
    assert fetch(TOY).read_bytes() == DATA


def test_another_file_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve({"/toy/": html("toy-1.0.tar.gz"), "/toy/toy-1.0.tar.gz": ("x/y", b"another one")})
    monkeypatch.setenv("PIP_INDEX_URL", address.replace("//", "//me:secret@"))
    with pytest.raises(DataError) as e:
        fetch(TOY)
    assert f"has another toy-1.0.tar.gz, with SHA-256 {hashlib.sha256(b'another one').hexdigest()}" in str(e.value)
    assert "secret" not in str(e.value) and not list((packages.cache_dir() / "swe/sdists").glob("*"))


def test_no_index_has_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve({"/toy/": html("other-1.0.tar.gz")})
    monkeypatch.setenv("PIP_INDEX_URL", address)
    with pytest.raises(DataError, match=f"{address} has no toy-1.0.tar.gz. Check the network or pip's index-url, or put the file into "):
        fetch(TOY)


def test_pips_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pip._internal.models.index import PyPI

    assert pip_settings() == ([PyPI.simple_url], None)
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://one.example/simple/\nextra-index-url =\n  https://two.example/s\n  file:///three\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert pip_settings()[0] == ["https://one.example/simple", "https://two.example/s", "file:///three"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://four.example")
    monkeypatch.setenv("PIP_CERT", "/some/file.pem")
    assert pip_settings() == (["https://four.example", "https://two.example/s", "file:///three"], "/some/file.pem")


def test_unpack_leaves_out_what_a_release_adds(tmp_path: Path) -> None:
    """Neither metadata nor version control nor caches nor links; nothing of the package is run."""
    place = packages.cache_dir() / "swe/sdists"
    place.mkdir(parents=True)
    (place / TOY.filename).write_bytes(DATA)
    tree = unpack(TOY, tmp_path / "tree")
    assert sorted(p.relative_to(tree).as_posix() for p in tree.rglob("*") if not p.is_dir()) == [
        "setup.py",
        "toy/__init__.py",
        "toy/_version.py",
        "toy/tests/test_toy.py",
    ]
    assert sources(TOY, tree) == ["toy/__init__.py"]
    with pytest.raises(DataError, match="there is something in it already"):
        unpack(TOY, tree)


def test_the_list() -> None:
    assert len(PACKAGES) >= 8
    assert {p.split for p in PACKAGES.values()} == {"train", "test"}
    assert sum(p.split == "test" for p in PACKAGES.values()) >= 2
    for p in PACKAGES.values():
        assert len(p.sha256) == 64 and int(p.sha256, 16) and p.licence in ("MIT", "BSD-3-Clause", "Apache-2.0")
        assert p.filename == f"{p.name.replace('-', '_')}-{p.version}.tar.gz"
    assert len({p.sha256 for p in PACKAGES.values()}) == len(PACKAGES)
    with pytest.raises(DataError, match=r"no package 'inflections' in the task set\. Did you mean 'inflection'"):
        package("inflections")
    assert package("parse").test_command("py")[:3] == ["py", "-m", "pytest"]
    assert {"addopts=", "no:cacheprovider"} <= set(package("semver").test_command())


def test_is_test() -> None:
    yes = ("tests/a.py", "a/tests/b/c.py", "test/common.py", "test_a.py", "a/b_test.py", "a/conftest.py")
    no = ("a.py", "testing/a.py", "a/attest.py", "contest.py", "latest/a.py")
    assert all(map(is_test, yes)) and not any(map(is_test, no))


def test_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned file is where pip looks, and has its tests."""
    monkeypatch.delenv("PIP_CONFIG_FILE")
    try:
        tree = unpack(package("first"), tmp_path / "tree")
    except DataError as e:
        pytest.skip(f"no package index: {e}")
    assert sources(package("first"), tree) == ["first.py"] and (tree / "test_first.py").is_file()
    assert not (tree / "PKG-INFO").exists() and not list(tree.glob("*.egg-info"))
    other = dataclasses.replace(package("first"), sha256="0" * 64)
    with pytest.raises(DataError, match=r"has another first-2\.0\.2\.tar\.gz"):
        fetch(other)
