"""bwrap's command line: what a sandbox shows of this machine; and whether bwrap can run here."""

from __future__ import annotations

import functools
import glob
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import seccomp
from .python import HOME, Python
from .types import TREE, USER, Limits

INSTALL = "apt-get install -y --no-install-recommends bubblewrap"
PATH = f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin"
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/bin/bash\nagent:x:{USER}:{USER}:agent:/tmp:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": f"agent:x:{USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/ld.so.cache": "",
    "guest.py": Path(__file__).with_name("guest.py").read_text("utf-8"),
}  # below the sandbox's place on the host
FOLDERS = ["etc/alternatives", "empty"]
_TOOLS = ("bash", "git", "patch", "diff", "grep", "sed", "find", "tar")
_SHOWN = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "local/bin", *(f"share/{name}" for name in (
    "awk", "file", "git-core", "i18n", "misc", "perl", "terminfo", "zoneinfo")))  # fmt: skip
_LIBRARIES = re.compile(r".+-linux-.+|file|gcc|git-core|locale|perl.*|python3\..+|ssl|terminfo")  # the folders of /usr/lib that are shown
_NAMESPACES = "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try".split()


def arguments(place: Path, python: Python, limits: Limits) -> list[str]:
    """Return the command line up to the guest's configuration; {guest} and {filter} stand for descriptors."""
    args = [shutil.which("bwrap") or "bwrap", *_NAMESPACES, *(["--disable-userns"] if _version() >= (0, 8) else [])]
    args += ["--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox", "--cap-drop", "ALL"]
    args += ["--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", *_system(f"{place}/empty")]
    args += ["--ro-bind", f"{place}/python", HOME, "--ro-bind", f"{place}/etc", "/etc"]
    for name in ("/etc/alternatives", "/etc/ld.so.cache"):
        if os.path.exists(name):
            args += ["--ro-bind", name, name]
    for name in python.libraries:
        args += ["--ro-bind", f"{place}/extra{name}", name]
    args += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.shm_mb << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    args += ["--size", str(limits.tmp_mb << 20), "--tmpfs", "/tmp", "--bind", f"{place}/work", TREE, "--ro-bind", f"{place}/guest.py", "/guest.py"]
    args += ["--remount-ro", "/", "--chdir", TREE, "--seccomp", "{filter}"]
    return [*args, f"{HOME}/bin/python3", "-I", "-S", "/guest.py", "{guest}"]


def lacking() -> str | None:
    """Return what is missing for a sandbox, None where nothing is."""
    return _lacking(os.environ.get("PATH", ""), os.geteuid())


def drops() -> bool:
    """Return whether root can start bwrap as a user without rights: then the sandbox's processes are nobody's on this machine."""
    return os.geteuid() == 0 and _trial(65534) is None


@functools.cache
def _lacking(path: str, user: int) -> str | None:
    """Look for what is missing once for each PATH."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux; use the backend docker"
    if not shutil.which("bwrap"):
        return f"bubblewrap is not installed: {INSTALL}"
    if missing := seccomp.missing():
        return missing
    tools = [name for name in _TOOLS if not shutil.which(name)]
    if tools:
        return f"the sandbox shows the host's own tools, and these are missing: apt-get install {' '.join(tools)}"
    failed = _trial(user)
    if failed is not None:
        return f"bubblewrap cannot make namespaces here ({failed}); a container needs --privileged for it, or use the backend docker"
    return None


@functools.cache
def _trial(user: int) -> str | None:
    """Return what bwrap says where it does not run as this user, else None."""
    command = [
        "bwrap",
        *_NAMESPACES,
        "--uid",
        str(USER),
        "--as-pid-1",
        "--ro-bind",
        "/usr",
        "/usr",
        *_links(),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "/usr/bin/true",
    ]
    other = {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/", **other)  # type: ignore[call-overload]
    return (done.stderr.strip()[-200:] or f"status {done.returncode}") if done.returncode else None


def _system(empty: str) -> list[str]:
    """Return the options that show programs and libraries of /usr. `empty` is a folder with nothing in it.

    Not shown is what else lies in /usr: there may be a copy of the very package that a task is about.
    """
    args = []
    for name in _SHOWN:
        if os.path.islink(f"/usr/{name}"):
            args += ["--symlink", os.readlink(f"/usr/{name}"), f"/usr/{name}"]
        elif os.path.isdir(f"/usr/{name}"):
            args += ["--ro-bind", f"/usr/{name}", f"/usr/{name}"]
    hidden = [f"/usr/lib/{name}" for name in _folders("/usr/lib") if not _LIBRARIES.fullmatch(name)]
    hidden += itertools.chain.from_iterable(glob.glob(f"/usr/lib/python3.*/{kind}-packages") for kind in ("site", "dist"))
    args += itertools.chain.from_iterable(("--ro-bind", empty, name) for name in hidden if os.path.isdir(name))
    return args + _links()


def _links() -> list[str]:
    """Return the options that show /bin and its like as they are here: links into /usr, or folders."""
    args = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            args += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    return args


def _folders(place: str) -> list[str]:
    return sorted(e.name for e in os.scandir(place) if e.is_dir(follow_symlinks=False)) if os.path.isdir(place) else []


@functools.cache
def _version() -> tuple[int, ...]:
    done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=20)
    return tuple(map(int, re.findall(r"\d+", done.stdout)[:2]))
