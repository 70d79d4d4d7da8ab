"""The base image of Docker sandboxes, made from this machine's own files: no registry is needed.

It has bash, coreutils, git and the other tools below, the libraries that these need, and the Python of python.py at /opt/python. Its tag names its
content, so that it is made once for each engine and machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

from agentgym.cache import cache_dir
from agentgym.errors import EnvError

from .python import HOME, Python, linked, locked, python_tree
from .types import TREE, USER

NAME = "agentgym-swe"
PATH = f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin"
_RECIPE = 1  # raise it when what is packed changes
_NEEDED = """
    bash sh env cat cp mv rm ln ls mkdir rmdir touch chmod stat du df dd head tail wc sort uniq cut tr tee seq sleep timeout true false test
    echo printf pwd basename dirname readlink realpath mktemp date id whoami uname nproc nohup base64 md5sum sha256sum od split comm join
    paste fold nl tac yes expr install sync grep sed find xargs tar gzip diff cmp patch git setsid
""".split()
_WELCOME = """
    awk gawk mawk egrep fgrep zcat gunzip bzip2 xz unzip zip less more file which ps kill pgrep pkill pidof top free uptime rev column
    hexdump xxd tree jq bc make ed nano vi getopt flock clear tput rg bunzip2 unxz diff3 sdiff csplit factor shuf tsort numfmt truncate
    mkfifo link unlink chgrp chown hostname groups logname users arch tty stty nice printenv pathchk cksum b2sum sha1sum sha512sum sum fmt
    pr ptx expand unexpand dircolors vdir dir [ locale getconf ldd mount
""".split()
_FOLDERS = ("/usr/lib/git-core", "/usr/share/git-core", "/usr/lib/locale/C.utf8", "/usr/share/zoneinfo", "/lib/terminfo", "/usr/share/misc/magic")
_PLACES = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_LINKS = ("bin", "sbin", "lib", "lib64")
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/bin/bash\nagent:x:{USER}:{USER}:agent:/tmp:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": f"root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def base_image(api: Any, packages: tuple[str, ...] = ("pytest",)) -> str:
    """Return the name of the base image in an engine; it is made where the engine does not have it. Raises EnvError."""
    import docker

    python = python_tree(packages)
    name = f"{NAME}:{_tag(python)}"
    try:
        api.inspect_image(name)
        return name
    except docker.errors.ImageNotFound:
        pass
    with locked(cache_dir() / "swe" / "image.lock"):
        try:
            api.inspect_image(name)
        except docker.errors.ImageNotFound:
            print(f"sandboxes: making the Docker image {name} from this machine's files (once, about 20 s)", file=sys.stderr, flush=True)
            _make(api, name, python)
    return name


def _tag(python: Python) -> str:
    """Return what names the image's content: the files by size and time of change."""
    seen = [_RECIPE, python.tag]
    for tool in _tools():
        status = tool.stat()
        seen.append([str(tool), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def _tools() -> list[Path]:
    found = {name: shutil.which(name, path=_PLACES) or shutil.which(name) for name in dict.fromkeys(_NEEDED + _WELCOME)}
    lacking = [name for name in _NEEDED if not found[name]]
    if lacking:
        raise EnvError(
            f"the base image is made from this machine's tools, and these are missing: {' '.join(lacking)} (apt-get install coreutils git patch …)"
        )
    return [Path(path) for path in found.values() if path]


def _make(api: Any, name: str, python: Python) -> None:
    """Pack the files and have the engine import them."""
    repository, _, tag = name.partition(":")
    with (cache_dir() / "swe" / f"image-{tag}.{os.getpid()}.tar").open("w+b") as file:
        os.unlink(file.name)
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
            _Packer(tar).pack(python)
        file.seek(0)
        changes = [f"ENV PATH={PATH}", f"WORKDIR {TREE}", f"LABEL agentgym.image={tag}"]
        blocks = iter(lambda: file.read(1 << 20), b"")  # the SDK sends an iterator as it should be, a file it does not
        answer = str(api.import_image_from_stream(blocks, repository=repository, tag=tag, changes=changes))
    made = re.search(r"sha256:[0-9a-f]{64}", answer)
    if not made:
        raise EnvError(f"the Docker engine cannot import the base image: {answer[-500:]}")
    api.tag(made[0], repository, tag)  # Podman does not heed the tag of an import


class _Packer:
    """Adds files of this machine to an archive, each once, in a system whose /bin and /lib are links into /usr."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._done: set[str] = set()

    def pack(self, python: Python) -> None:
        for name in (
            "usr",
            "usr/local",
            "usr/local/bin",
            *(f"usr/{link}" for link in _LINKS),
            "etc",
            "proc",
            "sys",
            "dev",
            "run",
            "var",
            "var/tmp",
            "opt",
            "home",
        ):
            self._folder(name)
        for name in _LINKS:
            self._add(name, tarfile.SYMTYPE, link=f"usr/{name}")
        self._folder("tmp", 0o1777)
        self._folder(TREE[1:])
        for name, text in _FILES.items():
            self._add(name, tarfile.REGTYPE, data=text.encode())
        programs = _tools()
        folders = [Path(name) for name in _FOLDERS if os.path.exists(name)]
        extensions = [*python.folder.rglob("*.so"), python.folder / "bin" / "python3"]
        helpers = [file for folder in folders[:1] for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
        for path in programs:
            self.file(path, str(path))
        for folder in folders:
            self.tree(folder, str(folder))
        self.tree(python.folder, HOME)
        for library, path in {**linked([*programs, *extensions, *helpers]), **python.libraries}.items():
            if not library.startswith(str(python.folder)):
                self.file(path, library)

    def tree(self, source: Path, target: str) -> None:
        """Add a folder and all below it, links as they are."""
        for folder, folders, files in os.walk(source):
            inside = os.path.join(target, os.path.relpath(folder, source))
            self._folder(os.path.normpath(inside).lstrip("/"))
            for name in files + [name for name in folders if os.path.islink(os.path.join(folder, name))]:
                path = Path(folder, name)
                if path.is_symlink() and not os.readlink(path).startswith("/"):
                    self._add(os.path.normpath(os.path.join(inside, name)).lstrip("/"), tarfile.SYMTYPE, link=os.readlink(path))
                elif path.is_file():
                    self.file(path, os.path.join(inside, name))

    def file(self, source: Path, target: str) -> None:
        """Add a file under its name; what a link points to takes the link's place."""
        real = source.resolve()
        with open(real, "rb") as f:
            self._add(_merged(target), tarfile.REGTYPE, mode=0o755 if os.access(real, os.X_OK) else 0o644, file=f, time=int(real.stat().st_mtime))

    def _folder(self, name: str, mode: int = 0o755) -> None:
        self._add(_merged(name), tarfile.DIRTYPE, mode=mode)

    def _add(
        self, name: str, kind: bytes, *, mode: int = 0o644, link: str = "", data: bytes = b"", file: IO[bytes] | None = None, time: int = 0
    ) -> None:
        if name in self._done:
            return
        parent = os.path.dirname(name)
        if parent and parent not in self._done:
            self._add(parent, tarfile.DIRTYPE, mode=0o755)
        self._done.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.mtime = kind, mode, link, time
        info.size = os.fstat(file.fileno()).st_size if file else len(data)
        self._tar.addfile(info, file or io.BytesIO(data))


def _merged(name: str) -> str:
    """Return a name without its leading slash, and below usr/ where it is one of the folders that are links there."""
    name = os.path.normpath(name).lstrip("/")
    first = name.partition("/")[0]
    return f"usr/{name}" if first in _LINKS and name != first else name
