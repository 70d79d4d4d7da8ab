"""The mounts of one bubblewrap sandbox. Used by holder.py in a mount namespace of its own; imports nothing of agentgym.

The work tree is an overlay: the given tree at the bottom, one layer for each snapshot, on top a layer for what the agent changes; each layer of our
own is a tmpfs of limited size. Where there can be no overlay over the tree, it is copied into such a layer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
from typing import Any

NEWNS, NEWUSER = 0x00020000, 0x10000000  # unshare
_NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 2, 4, 4096, 16384, 1 << 18  # mount
_DETACH = 2  # umount2
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # system calls, the same numbers on every architecture
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _MOVE_FROM_EMPTY_PATH, _ATTR_RDONLY, _ATTR_IDMAP, _AT_FDCWD = 1, 0x1000, 4, 1, 0x00100000, -100
_COPIED_MB = 256  # without root's rights a folder of an overlay cannot be renamed, only moved by copying: smaller trees than this are copied
_libc = ctypes.CDLL(None, use_errno=True)


class Mounts:
    """The layers of a sandbox, below the folder `place`.

    tree  the clean tree
    user  the number of the sandbox's user on the host
    disk  megabytes that each layer may hold
    """

    def __init__(self, place: str, tree: str, user: int, disk: int) -> None:
        self._user, self._disk = user, disk
        self._layers: list[str] = []  # the oldest one first; the last one takes the changes
        mount("tmpfs", place, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=755")
        os.chdir(place)  # short names: an overlay's options have at most 4096 bytes
        os.mkdir("tree")
        os.mkdir("work")
        self.copies = not self._show(tree) or (not _real_root() and megabytes(tree) <= _COPIED_MB)
        try:
            self._push()
        except OSError:
            if self.copies:
                raise
            self.copies = True  # overlays are not allowed here, or not over this file system
            self._push()

    def fresh(self) -> None:
        """Bring back the clean tree: the last layer gives way to an empty one."""
        unmount("work")
        unmount(self._layers.pop())
        self._push()

    def keep(self) -> None:
        """Make what there is now the clean tree."""
        unmount("work")
        self._push()

    def bind(self, source: str, name: str) -> None:
        """Show a folder or a file of the host under another name."""
        if os.path.isdir(source):
            os.makedirs(name, exist_ok=True)
        else:
            self.file(name, "")
        mount(source, name, None, _BIND | _REC, None)

    def file(self, name: str, text: str) -> None:
        """Write a small file."""
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)

    def _push(self) -> None:
        """Add a layer, and mount the work tree with it on top."""
        layer = f"layer{len(self._layers)}"
        os.makedirs(layer, exist_ok=True)
        clean = f"{self._layers[-1]}/up" if self._layers else "tree"
        room = self._disk + (megabytes(clean) if self.copies else 0)
        mount("tmpfs", layer, "tmpfs", _NOSUID | _NODEV, f"size={room}m,nr_inodes={4000 + 512 * room},mode=755")
        try:
            for name in ("up", "aside"):
                os.mkdir(f"{layer}/{name}")
            if self.copies:
                subprocess.run(["cp", "-a", "--no-preserve=ownership", f"{clean}/.", f"{layer}/up"], check=True, capture_output=True)
                if self._user != os.geteuid():
                    subprocess.run(["chown", "-hR", f"{self._user}:{self._user}", f"{layer}/up"], check=True, capture_output=True)
                mount(f"{layer}/up", "work", None, _BIND, None)
            else:
                os.chmod(f"{layer}/up", 0o755)
                os.chown(f"{layer}/up", self._user, self._user)
                lower = ":".join([f"{old}/up" for old in reversed(self._layers)] + ["tree"])
                extra = "redirect_dir=on" if _real_root() else "userxattr"  # redirect_dir: a folder of the tree can be renamed
                mount("overlay", "work", "overlay", _NOSUID | _NODEV, f"lowerdir={lower},upperdir={layer}/up,workdir={layer}/aside,{extra}")
        except subprocess.CalledProcessError as e:
            unmount(layer)
            raise OSError(0, f"cannot copy the tree: {e.stderr.decode('utf-8', 'replace').strip()[-500:]}") from e
        except OSError:
            unmount(layer)
            raise
        self._layers.append(layer)

    def _show(self, tree: str) -> bool:
        """Mount the tree with its files belonging to the sandbox's user; return whether that was possible."""
        owner = _one_owner(tree)
        if owner == (self._user, self._user):
            self.bind(tree, "tree")
            return True
        try:
            if owner and _real_root():
                _bind_mapped(tree, "tree", owner, self._user)
                return True
        except OSError:  # a file system or a kernel that cannot
            pass
        self.bind(tree, "tree")
        return False


def isolate() -> None:
    """Enter a mount namespace, so that no mount is seen outside; without root's rights also a user namespace, in which this user is root."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(NEWNS if user == 0 else NEWNS | NEWUSER), "unshare")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
    mount(None, "/", None, _REC | _PRIVATE, None)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    """Call mount(2). Raises OSError."""
    args: list[Any] = [os.fsencode(x) if x is not None else None for x in (source, target, kind)]
    _check(_libc.mount(*args, ctypes.c_ulong(flags), options.encode() if options is not None else None), f"mount {kind or source} at {target}")


def unmount(target: str) -> None:
    """Call umount2(2), lazily: a process that is just being killed may still use it. Raises OSError."""
    _check(_libc.umount2(os.fsencode(target), _DETACH), f"unmount {target}")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _real_root() -> bool:
    """Return whether this process is root of the whole machine (or container), not of a user namespace of its own."""
    with open("/proc/self/uid_map") as f:
        return os.geteuid() == 0 and int(f.read().split()[2]) > 1


def _one_owner(tree: str) -> tuple[int, int] | None:
    """Return (user, group) where all files belong to the same ones, else None."""
    first = os.lstat(tree)
    owner = first.st_uid, first.st_gid
    todo = [tree]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                seen = entry.stat(follow_symlinks=False)
                if (seen.st_uid, seen.st_gid) != owner:
                    return None
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return owner


def megabytes(tree: str) -> int:
    """Return the room that a tree takes in a tmpfs, with some to spare."""
    pages = 0
    for folder, folders, files in os.walk(tree):
        pages += len(folders) + sum(2 + os.lstat(os.path.join(folder, name)).st_size // 4096 for name in files)
    return 1 + pages * 4096 // (1 << 20)


def _bind_mapped(source: str, target: str, owner: tuple[int, int], user: int) -> None:
    """Show a folder, read-only, such that what belongs to `owner` there belongs to `user` here (an idmapped mount: Linux 5.12)."""
    space = _user_namespace(owner, user)
    try:
        tree = _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC), "open_tree")
        try:
            attributes = struct.pack("=QQQQ", _ATTR_IDMAP | _ATTR_RDONLY, 0, 0, space)
            _check(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, len(attributes)), "mount_setattr")
            _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_FROM_EMPTY_PATH), "move_mount")
        finally:
            os.close(tree)
    finally:
        os.close(space)


def _user_namespace(owner: tuple[int, int], user: int) -> int:
    """Return a descriptor of a user namespace that maps one user and one group."""
    ready, mine = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(mine, b"y" if _libc.unshare(NEWUSER) == 0 else b"n")
        signal.pause()
    try:
        if os.read(ready, 1) != b"y":
            raise OSError(1, "no user namespaces here")
        for name, inside in zip(("uid_map", "gid_map"), owner, strict=True):
            with open(f"/proc/{pid}/{name}", "w") as f:
                f.write(f"{inside} {user} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(mine)
