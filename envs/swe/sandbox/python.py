"""The Python that a sandbox gets: this process's own interpreter and standard library with pytest, and nothing else of the host's packages.

It is copied once into the cache and stands at /opt/python in every sandbox. Libraries that the interpreter looks for under their absolute name on the
host (a shared libpython with such an RPATH) are shown under that name.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentgym.cache import atomic_folder, cache_dir
from agentgym.errors import EnvError

HOME = "/opt/python"  # in the sandbox
_RECIPE = 2  # raise it when what is copied changes
_LEFT_OUT = {"site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip"}
_KEPT_TESTS = {"__init__.py", "support"}  # of the package `test`: what other packages' tests import
_SCRIPT = f"#!{HOME}/bin/python3\nimport sys\nfrom {{module}} import {{name}}\nsys.exit({{name}}())\n"


class Python(NamedTuple):
    """A copy of the interpreter.

    folder     what stands at /opt/python
    libraries  absolute name → the file that has to be there too
    tag        names the content
    """

    folder: Path
    libraries: dict[str, Path]
    tag: str


def python_tree(packages: tuple[str, ...] = ("pytest",)) -> Python:
    """Return the Python for sandboxes, with these packages of this process's environment and what they require; copied at the first call.

    Raises EnvError where a package is not installed.
    """
    return _tree(packages, str(cache_dir()))


@functools.cache
def _tree(packages: tuple[str, ...], cache: str) -> Python:
    chosen = _closure(packages)
    binary = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    seen = [_RECIPE, sys.version, str(binary), binary.stat().st_mtime_ns, sorted(f"{d.name} {d.version}" for d in chosen)]
    tag = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
    folder = Path(cache) / "swe" / f"python-{tag}"
    if not folder.exists():
        with locked(folder.parent / "python.lock"):
            if not folder.exists():
                print(
                    f"sandboxes: copying Python {sys.version.split()[0]} with {', '.join(packages)} to {folder} (once)", file=sys.stderr, flush=True
                )
                with atomic_folder(folder) as new:
                    _copy(new, binary, chosen)
    libraries = {name: folder / "libraries" / name.lstrip("/") for name in json.loads((folder / "libraries.json").read_text("utf-8"))}
    return Python(folder / "python", libraries, tag)


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other processes out of what two must not build at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def linked(files: list[Path]) -> dict[str, Path]:
    """Return the shared libraries that programs and libraries need: the name under which each is looked for → the file."""
    found: dict[str, Path] = {}
    for start in range(0, len(files), 100):
        done = subprocess.run(
            ["ldd", *map(str, files[start : start + 100])], capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C"}
        )
        for name in re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE):
            found[name] = Path(name).resolve()
    return found


def _closure(packages: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    """Return the packages and all that they require here."""
    from packaging.requirements import Requirement

    found: dict[str, importlib.metadata.Distribution] = {}
    todo = list(packages)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise EnvError(f"sandboxes need the package {name}: pip install {name}") from None
        wanted = map(Requirement, found[name].requires or [])
        todo += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return list(found.values())


def _copy(new: Path, binary: Path, packages: list[importlib.metadata.Distribution]) -> None:
    """Copy interpreter, standard library, packages and private libraries into a new folder."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    root = new / "python"
    standard = Path(sysconfig.get_path("stdlib"))
    library = root / standard.relative_to(sys.base_prefix)
    (root / "bin").mkdir(parents=True)
    shutil.copy2(binary, root / "bin" / version)
    for name in ("python", "python3"):
        (root / "bin" / name).symlink_to(version)
    _copy_library(standard, library)
    site = library / "site-packages"
    site.mkdir()
    for package in packages:
        for file in package.files or []:
            source = Path(str(package.locate_file(file)))
            if ".." not in file.parts and source.is_file() and not _other_pyc(file.name):
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, site / file)
        for script in package.entry_points.select(group="console_scripts"):
            (root / "bin" / script.name).write_text(_SCRIPT.format(module=script.module, name=script.attr), "utf-8")
            (root / "bin" / script.name).chmod(0o755)
    (root / "lib" / "python3").mkdir(parents=True, exist_ok=True)
    (root / "lib" / "python3" / "dist-packages").symlink_to(os.path.relpath(site, root / "lib" / "python3"))  # where Debian's Python looks
    with warnings.catch_warnings(action="ignore"):
        compileall.compile_dir(library, quiet=2, stripdir=str(root), prependdir=HOME)
    _copy_linked(new, root, binary)
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o755)


def _copy_library(source: Path, target: Path) -> None:
    def left_out(folder: str, names: list[str]) -> set[str]:
        here = Path(folder)
        if here == source:
            out = {name for name in names if name in _LEFT_OUT - {"test"} or name.startswith("config-")}
        elif here == source / "test":
            out = set(names) - _KEPT_TESTS
        else:
            out = set()
        return out | {name for name in names if _other_pyc(name)}

    shutil.copytree(source, target, ignore=left_out, ignore_dangling_symlinks=True)


def _other_pyc(name: str) -> bool:
    """Return whether a file is byte code of another Python, or of another level of optimisation."""
    return name.endswith(".pyc") and not name.endswith(f".{sys.implementation.cache_tag}.pyc")


def _copy_linked(new: Path, root: Path, binary: Path) -> None:
    """Copy the libraries that are not the system's: beside the interpreter, and under their own name where that is how they are found."""
    prefix = Path(sys.base_prefix).resolve()
    own = {name: file for name, file in linked([binary, *root.rglob("*.so")]).items() if not name.startswith(("/lib", "/usr/lib"))}
    for file in own.values():
        if file.is_relative_to(prefix) and not (root / file.relative_to(prefix)).exists():
            (root / file.relative_to(prefix)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, root / file.relative_to(prefix))
    found = linked([root / "bin" / "python3", *root.rglob("*.so")])
    apart = {name: file for name, file in found.items() if not name.startswith(("/lib", "/usr/lib", str(root)))}
    for name, file in apart.items():
        target = new / "libraries" / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    (new / "libraries.json").write_text(json.dumps(sorted(apart)), "utf-8")
