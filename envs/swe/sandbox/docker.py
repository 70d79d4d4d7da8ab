"""Sandboxes by Docker (or Podman's Docker API): a container for each.

The work tree is a tmpfs of limited size, filled from an archive; the rest of the container cannot be written. Commands run in processes that the
engine starts; files are read and written through a long-lived bash of the agent's user, for the engine's own way to copy files does not see a tmpfs.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import os
import secrets
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from agentgym.errors import ConfigError, EnvError

from . import owner
from .base import Base, environment
from .clean import LIST, Clean, Entry, Repair, entries, repair
from .container import Container, reap_containers
from .engine import CALL_S, asking, client, host
from .image import PATH, base_image
from .shell import ARGV, Shell
from .types import TREE, Limits, Sandbox, SandboxMissing

_LOAD_S = 300.0
_INLINE = 1 << 18  # bytes of a file that still go through the long-lived helper shell
# The farewell comes over stdin: `ps` does not show it, so no command can write it by chance. Then it waits until we have gone: two seconds after the
# end of a process the engine drops what it has not passed on, where a job in the background holds the output open.
_SHELL = f"""read -r f; {" ".join(ARGV)}; c=$?; printf '\\x1e%s' "$f"; printf 'gone %d\\n' "$c" >&2; while read -rt 60; do :; done"""
_OPEN_UP = "-type d ! -perm -700 -exec chmod u+rwx {} \\;"
_TEMPORARY = f"""{{ cd /; ipcrm -a; for d in /tmp /var/tmp /dev/shm; do find $d -mindepth 1 {_OPEN_UP}; find $d -mindepth 1 -delete; done
chmod u+rwx {TREE}; find {TREE} {_OPEN_UP}; }} >/dev/null 2>&1
"""
_WIPE = f"""find {TREE} -mindepth 1 -delete; [ -z "$(ls -A {TREE})" ] || exit 90
"""
_LISTED = 1 << 26  # bytes of a list of the work tree, as base64
_MANY = 5000  # entries to remove; where there are more, or most of a large tree is to be unpacked, all of it is unpacked anew
_HELPERS = """set -o pipefail; export LC_ALL=C; umask 022
__plain() { [[ ! -e $1 || -f $1 || -d $1 ]] || { echo "$1: Invalid argument"; return 1; }; }
__read() { __plain "$1" && head -c "$2" -- "$1" | base64 -w0; }
__write() { mkdir -p -- "${1%/*}/" && __plain "$1" && printf %s "$2" | base64 -d >"$1"; }
"""
_ERRORS = {
    os.strerror(number): number
    for number in (
        *(errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EEXIST),
        *(errno.EINVAL, errno.ENAMETOOLONG, errno.EPERM),
    )
}


class Docker:
    """The backend. packages: what the base image's Python has besides its standard library."""

    name = "docker"

    def __init__(self, packages: tuple[str, ...] = ("pytest",)) -> None:
        self._packages = packages

    def available(self) -> str | None:
        try:
            client(10).close()
        except SandboxMissing as e:
            return str(e)
        return None

    def describe(self) -> dict[str, str]:
        with asking("say what it is"), contextlib.closing(client()) as api:
            info = api.info()
        return {
            "engine": f"{info.get('ServerVersion')} at {host()}",
            "work tree": "a tmpfs of disk_mb and the size of the tree, filled with a copy",
            "disk": "that tmpfs; /tmp has half of disk_mb, /dev/shm 64 MB; all else is read-only",
            "memory": "memory control group, no swap" if info.get("MemoryLimit") else "not limited: the engine has no memory control group",
            "pids": "pids control group" if info.get("PidsLimit") else "not limited: the engine has no pids control group",
            "cpus": "cpu control group" if info.get("CpuCfsQuota") else "not limited: the engine has no cpu control group",
            "file size": "RLIMIT_FSIZE of disk_mb and the size of the tree",
            "user": "1000; root's killer has no right but CAP_KILL",
            "rights": "all capabilities dropped but CAP_KILL (of no use to user 1000), no new privileges",
            "network": "none but its own loopback",
            "system calls": f"the engine's own seccomp profile ({', '.join(info.get('SecurityOptions') or ['none'])})",
        }

    def open(self, tree: Path | None, *, image: str | None = None, limits: Limits = Limits(), env: Mapping[str, str] = {}) -> Sandbox:
        if (tree is None) == (image is None):
            raise ConfigError(f"give either a tree or an image that has one at {TREE}, not tree={tree} and image={image!r}")
        owner.reap_once()
        api = client()
        folder = owner.folder()
        try:
            clean = Clean.of_tree(Path(tree)) if tree is not None else Clean.of_image(api, str(image), folder)
            own = {} if image else {"PATH": PATH}
            name = image or base_image(api, self._packages)
            return DockerSandbox(Container(api, name, limits, environment({**own, **env}), clean.megabytes), clean, limits, folder)
        except BaseException:
            api.close()
            owner.discard(folder)
            raise


class DockerSandbox(Base):
    """One container with a work tree."""

    def __init__(self, container: Container, clean: Clean, limits: Limits, folder: Path) -> None:
        super().__init__(limits)
        self._container, self._clean, self._folder = container, clean, folder
        self._helper: Shell | None = None
        self._snapshots = 0
        self._seen: dict[bytes, Entry] | None = None  # the clean tree; None where the image has no GNU find
        try:
            self._load("")
        except BaseException:
            self.close()
            raise

    def _bash(self, env: Mapping[str, str]) -> Shell:
        farewell = secrets.token_hex(16)
        stream, _ = self._container.execute(["/bin/bash", "-c", _SHELL], env)
        stream.send(f"{farewell}\n".encode(), time.monotonic() + CALL_S)
        return Shell(stream, farewell=farewell.encode())

    def _end_processes(self) -> None:
        if self._helper:
            self._helper.close()
            self._helper = None
        self._container.end_processes()

    def _read(self, path: str, limit: int) -> bytes:
        return base64.b64decode(self._help("__read", path, str(limit), room=2 * limit + 1000))

    def _write(self, path: str, data: bytes) -> None:
        if len(data) <= _INLINE:
            self._help("__write", path, base64.b64encode(data).decode())
            return
        self._help("__write", path, "")
        with io.BytesIO(data) as f:
            code, said = self._container.feed(["/bin/bash", "-c", f"LC_ALL=C cat >{shlex.quote(path)}"], b"", f, _LOAD_S)
        if code:
            raise _error(said.decode("utf-8", "replace"), path)

    def _snapshot(self) -> None:
        self._end_processes()
        self._snapshots += 1
        file = self._folder / f"snapshot{self._snapshots}.tar"
        with open(file, "wb") as f:
            code, said = self._container.drain(["tar", "-C", TREE, "-cf", "-", "."], f, _LOAD_S)
        if code:
            raise EnvError(f"cannot take a snapshot of {TREE}: {said.decode('utf-8', 'replace').strip()[-500:]}")
        for old in ("tree.tar", f"snapshot{self._snapshots - 1}.tar"):
            (self._folder / old).unlink(missing_ok=True)
        self._clean = Clean(file, self._clean.megabytes)
        self._seen = self._list()

    def _reset(self) -> None:
        self._end_processes()
        clean = self._seen
        now = self._list(_TEMPORARY) if clean else None
        if not clean or not now or not self._repaired(clean, repair(clean, now)):
            self._load(_TEMPORARY + _WIPE)

    def _list(self, before: str = "") -> dict[bytes, Entry] | None:
        """Return what is in the work tree now."""
        try:
            return entries(base64.b64decode(self._ask(f"{before}{LIST} | base64 -w0", TREE, _LISTED)))
        except (OSError, ValueError):
            return None

    def _repaired(self, clean: dict[bytes, Entry], needed: Repair) -> bool:
        """Do what a repair needs, where that is not much; return whether the work tree is then as it was."""
        if len(needed.remove) > _MANY or len(needed.unpack) > max(1000, 0.8 * len(clean)):
            return False
        if not needed.remove and not needed.unpack:
            return True
        gone = b"".join(b"./" + name + b"\0" for name in needed.remove)
        command = f"umask 022; cd {TREE}; head -c {len(gone)} | xargs -0 -r rm -rf --; exec {self._clean.unpack()}"
        try:
            with self._clean.part(needed.unpack) as part:
                code, _ = self._container.feed(["/bin/bash", "-c", command], gone, part, _LOAD_S)
        except KeyError:  # what no archive can hold, such as a socket
            return False
        self._seen = None if code else self._list()
        return self._seen is not None and {name: entry.kept for name, entry in self._seen.items()} == {
            name: entry.kept for name, entry in clean.items()
        }

    def _load(self, before: str) -> None:
        with self._clean.archive() as archive:
            code, said = self._container.feed(["/bin/bash", "-c", f"umask 022\n{before}exec {self._clean.unpack()}"], b"", archive, _LOAD_S)
        if code:
            raise EnvError(f"cannot fill {TREE} (status {code}): {said.decode('utf-8', 'replace').strip()[-500:]}")
        self._seen = self._list()

    def _abort(self) -> None:
        self._container.abort()

    def _close(self) -> None:
        if self._helper:
            self._helper.close()
        self._container.remove()
        self._container.api.close()
        owner.discard(self._folder)

    def _help(self, function: str, path: str, argument: str, room: int = 4000) -> str:
        """Call a function of the helper shell; return what it wrote. Raises OSError."""
        if "\0" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return self._ask(f"{function} {shlex.quote(os.path.join(TREE, path))} {shlex.quote(argument)}", path, room)

    def _ask(self, call: str, path: str, room: int) -> str:
        """Have the helper shell do something about a file; return what it wrote. Raises OSError."""
        for _ in range(2):
            if self._helper is None:
                self._helper, ended = self._executed(_HELPERS, {}, CALL_S, 1000)
            ended = self._helper.execute(call, CALL_S, room)
            if ended.how == "done" and not ended.code:
                return ended.text
            if ended.how == "done":
                raise _error(ended.text, path)
            self._helper.close()  # the agent killed it, or has a pipe under that name
            self._helper = None
        raise OSError(errno.EIO, "the file cannot be read or written", path)


def _error(text: str, path: str) -> OSError:
    """Return the error that a program's message is about."""
    for said, number in _ERRORS.items():
        if said in text:
            return OSError(number, said, path)
    return OSError(errno.EIO, text.strip()[-300:] or "it failed", path)


owner.add_reaper(reap_containers)
