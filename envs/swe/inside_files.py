"""What is in a work tree, file by file. Used on the host, and run inside of a sandbox as `python -I -S -c SOURCE MODE ROOT`.

Imports nothing of agentgym. MODE `key` prints one hash of the content; `list` prints a line of JSON for each file: [path, kind, mode, size, hash].
Version control, compiled files and empty folders are left out. Must run on Python 3.6, the oldest that images of task sets have.
"""

import hashlib
import json
import os
import stat
import sys

LEFT_OUT = frozenset((".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))
COMPILED = (".pyc", ".pyo")
_BLOCK = 1 << 20


def entries(root: str) -> "list[tuple[str, str, int, int, str]]":
    """Return (path, kind, mode, size, hash) of all files, sorted, paths relative to `root`.

    kind  "file"; "link", whose hash is of its target; "unreadable"; "other": a pipe, a device
    mode  0o100 where a file can be run, else 0
    """
    out, todo = [], [""]
    while todo:
        folder = todo.pop()
        try:
            names = os.listdir(os.path.join(root, folder))
        except OSError:
            out.append((folder, "unreadable", 0, 0, ""))
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name in LEFT_OUT or name.endswith(COMPILED):
                continue
            try:
                seen = os.lstat(os.path.join(root, path))
            except OSError:
                continue
            if stat.S_ISDIR(seen.st_mode):
                todo.append(path)
            else:
                out.append(_entry(root, path, seen))
    return sorted(out)


def _entry(root: str, path: str, seen: os.stat_result) -> "tuple[str, str, int, int, str]":
    full = os.path.join(root, path)
    try:
        if stat.S_ISLNK(seen.st_mode):
            target = os.fsencode(os.readlink(full))
            return path, "link", 0, len(target), hashlib.sha256(target).hexdigest()
        if not stat.S_ISREG(seen.st_mode):
            return path, "other", 0, 0, ""
        sha = hashlib.sha256()
        with open(full, "rb") as f:
            block = f.read(_BLOCK)
            while block:
                sha.update(block)
                block = f.read(_BLOCK)
        return path, "file", stat.S_IMODE(seen.st_mode) & 0o100, seen.st_size, sha.hexdigest()
    except OSError:
        return path, "unreadable", 0, 0, ""


def key(root: str) -> str:
    """Return the hash of a tree's content: names, content, links, and which files can be run."""
    return hashlib.sha256(json.dumps(entries(root)).encode()).hexdigest()[:32]


def main() -> None:
    """Print what is asked for."""
    mode, root = sys.argv[1:3]
    if mode == "key":
        print(key(root))
        return
    for line in entries(root):
        print(json.dumps(line))
    print("end")


if __name__ == "__main__":
    main()
