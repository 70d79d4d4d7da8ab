"""The clean work tree of a Docker sandbox, all of it or some files, as an archive; and what has to be done to a work tree to make it clean again."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from agentgym.errors import ConfigError, EnvError

from . import owner
from .container import LABEL
from .engine import asking, client
from .mounts import megabytes
from .types import TREE

_PULL_S = 3600.0
# GNU find: for each entry what tells whether it was touched. Any change of content, mode or links changes the time %C@, which nobody in there can
# set. The clock of files has ticks of up to 10 ms: what the agent does next must not fall into the tick of what was just unpacked.
LIST = f"sleep 0.02; find {TREE} -printf '%y %m %s %i %C@\\0%P\\0%l\\0'"


class Entry(NamedTuple):
    """A file, folder or link of a work tree: what it is like, and what changes when it is touched (nothing for a folder: its entries count)."""

    kept: tuple[bytes, ...]
    touched: tuple[bytes, ...]


def entries(listing: bytes) -> dict[bytes, Entry]:
    """Read what `LIST` wrote: name below the tree → entry. Raises ValueError for anything else."""
    found = {}
    fields = listing.split(b"\0")
    for facts, name, link in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        kind, mode, size, inode, changed = facts.split(b" ")
        folder = kind == b"d"
        found[name] = Entry((kind, mode, b"" if folder else size, link), () if folder else (inode, changed))
    if b"" not in found:
        raise ValueError("not a listing")
    return found


class Repair(NamedTuple):
    """What makes a work tree clean: names to remove, with all below them, and then names to unpack anew."""

    remove: list[bytes]
    unpack: list[bytes]


def repair(clean: dict[bytes, Entry], now: dict[bytes, Entry]) -> Repair:
    """Compare a work tree with what it was when it was clean."""
    unpack = [name for name, entry in clean.items() if now.get(name) != entry]
    added = [name for name in now if name not in clean]
    replaced = [name for name in unpack if name in now and not now[name].kept[0] == clean[name].kept[0] == b"d"]
    return Repair(added + replaced, unpack)


class Clean:
    """A clean work tree: a folder of the host, or an archive whose names begin with `strip` parts that do not count."""

    def __init__(self, source: Path, megabytes: int, strip: int = 0) -> None:
        self._source, self.megabytes, self._strip = source, megabytes, strip

    @classmethod
    def of_tree(cls, tree: Path) -> Clean:
        """Take a folder of the host. Raises ConfigError where it is none."""
        if not tree.is_dir():
            raise ConfigError(f"the work tree {tree} is no folder")
        return cls(tree.resolve(), megabytes(str(tree)))

    @classmethod
    def of_image(cls, api: Any, image: str, folder: Path) -> Clean:
        """Take /testbed out of an image, which is pulled where the engine does not have it."""
        import docker

        try:
            api.inspect_image(image)
        except docker.errors.ImageNotFound:
            print(f"sandboxes: pulling the Docker image {image}", flush=True)
            with asking(f"pull the image {image}"), contextlib.closing(client(_PULL_S)) as patient:
                patient.pull(image)
        file = folder / "tree.tar"
        with asking(f"copy {TREE} out of the image {image}"):
            made = api.create_container(image, ["true"], labels={LABEL: str(owner.me())}, network_disabled=True)["Id"]
            try:
                blocks, _ = api.get_archive(made, TREE, chunk_size=1 << 20)
                with open(file, "wb") as f:
                    for block in blocks:
                        f.write(block)
            finally:
                api.remove_container(made, force=True, v=True)
        return cls(file, 1 + file.stat().st_size // (1 << 20), strip=1)

    def unpack(self) -> str:
        """Return the command that takes an archive of ours from stdin."""
        return f"tar -xpf - -C {TREE} --no-same-owner --strip-components={self._strip}"

    @contextlib.contextmanager
    def archive(self) -> Iterator[IO[bytes]]:
        """Give the archive of the whole tree to read. Raises EnvError where the folder cannot be read."""
        if self._source.is_dir():
            with self._packed(["."]) as packed:
                yield packed
        else:
            with open(self._source, "rb") as f:
                yield f

    @contextlib.contextmanager
    def part(self, names: list[bytes]) -> Iterator[IO[bytes]]:
        """Give an archive of some entries to read, folders without what is below them. Raises EnvError, KeyError for a name that it does not have."""
        if self._source.is_dir():
            with tempfile.NamedTemporaryFile() as wanted:
                wanted.write(b"".join(b"./" + name + b"\0" for name in names))
                wanted.flush()
                with self._packed(["--no-recursion", "--null", "-T", wanted.name]) as packed:
                    yield packed
        else:
            chosen = sorted(self._places[name] for name in names)
            with open(self._source, "rb") as f:
                yield io.BytesIO(b"".join(os.pread(f.fileno(), end - start, start) for start, end in chosen) + bytes(1024))

    @functools.cached_property
    def _places(self) -> dict[bytes, tuple[int, int]]:
        """Where each entry is in the archive: name below the tree → start and end."""
        with tarfile.open(self._source, mode="r:") as tar:
            members = tar.getmembers()
            ends = [member.offset for member in members[1:]] + [tar.offset]
        tops = ("./", ".") if not self._strip else (f"{members[0].name.rstrip('/')}/", members[0].name)
        names = [member.name.removeprefix(tops[0]) if member.name != tops[1] else "" for member in members]
        return {os.fsencode(name): (member.offset, end) for name, member, end in zip(names, members, ends, strict=True)}

    @contextlib.contextmanager
    def _packed(self, what: list[str]) -> Iterator[IO[bytes]]:
        command = ["tar", "-C", str(self._source), "-cf", "-", *what]
        packing = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert packing.stdout and packing.stderr
        try:
            yield packing.stdout
            packing.stdout.close()
            said = packing.stderr.read().decode("utf-8", "replace").strip()
            if packing.wait(30):
                raise EnvError(f"cannot read the work tree {self._source}: {said[-500:]}")
        finally:
            packing.kill()
            packing.stdout.close()
            packing.stderr.close()
            packing.wait()
