"""Checkpoints on disk: a folder appears whole or not at all, says what it holds, and is verified when it is read.

checkpoints/
    step-000012/            the last `keep_last` of them, to resume from
        model/              whatever the caller's function saves there
        trainer.pt          state of optimizer, sampler, methods, counters, random generators (tensors and plain values only)
        meta.json           fingerprint of the configuration, versions, sha256 of every file
    best-000008/            the newest that was saved with best=True
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentgym import __version__
from agentgym.errors import CheckpointError

_FORMAT = 1
_NAME = re.compile(r"(step|best)-(\d{6,})")
_TEMPORARY = re.compile(r"((?:step|best)-\d{6,})\.(tmp|old)-\d+")


class Checkpoints:
    """The checkpoint folder of one run; one process at a time writes to it.

    keep_last    how many of the step-* are kept
    fingerprint  of the configuration; a checkpoint with another one is refused
    Raises CheckpointError when another process has the folder.
    """

    def __init__(self, root: Path, *, keep_last: int = 2, fingerprint: str = "") -> None:
        if keep_last < 1:
            raise CheckpointError(f"keep_last is {keep_last}; at least 1 must be kept, or nothing can be resumed")
        self.root, self.keep_last, self.fingerprint = Path(root), keep_last, fingerprint
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.root)
        self._clean()

    def save(self, step: int, save_model: Callable[[Path], object], state: dict[str, Any], *, best: bool = False) -> Path:
        """Write one checkpoint and return its folder, replacing an older one of the same step; then delete what is no longer kept.

        `save_model(folder)` writes the model's files; `state` holds tensors, numbers, strings, lists, tuples and dicts. The states of the
        global random generators are added. Raises CheckpointError when anything fails; earlier checkpoints are untouched then.
        """
        _check_plain(state, "state")
        final = self.root / f"{'best' if best else 'step'}-{step:06d}"
        temporary = self.root / f"{final.name}.tmp-{os.getpid()}"
        try:
            temporary.mkdir()
            save_model(temporary / "model")
            torch.save({"state": state, "rng": rng_state()}, temporary / "trainer.pt")
            meta = {"format": _FORMAT, "step": step, "fingerprint": self.fingerprint, "written": time.time(), "versions": versions()}
            write_json(temporary / "meta.json", meta | {"files": _seal(temporary)})
            _publish(temporary, final)
        except BaseException as e:
            shutil.rmtree(temporary, ignore_errors=True)
            if not isinstance(e, Exception):  # Ctrl-C: leave nothing behind, say nothing
                raise
            last = self.latest()
            raise CheckpointError(
                f"checkpoint {final.name} could not be written to {self.root}: {type(e).__name__}: {e} "
                f"({shutil.disk_usage(self.root).free / 1e6:.0f} MB free). Earlier checkpoints are untouched "
                f"(last: {last.name if last else 'none'}). Free some space, or lower checkpoint.keep_last, and resume."
            ) from e
        self._prune()
        return final

    def latest(self) -> Path | None:
        """Return the newest checkpoint to resume from."""
        return newest(self.root, "step")

    def best(self) -> Path | None:
        """Return the newest checkpoint that was saved as the best."""
        return newest(self.root, "best")

    def load_latest(self, *, restore_rng: bool = True) -> tuple[Path, dict[str, Any]] | None:
        """Return (folder, state) of the newest checkpoint, or None; the global random generators go on from where they were."""
        folder = self.latest()
        if folder is None:
            return None
        saved = load(folder, fingerprint=self.fingerprint)
        if restore_rng:
            set_rng_state(saved["rng"])
        return folder, saved["state"]

    def close(self) -> None:
        """Let other processes have the folder."""
        self._lock.close()

    def _prune(self) -> None:
        for kind, keep in (("step", self.keep_last), ("best", 1)):
            for folder in _all(self.root, kind)[:-keep]:
                doomed = self.root / f"{folder.name}.tmp-{os.getpid()}"
                folder.rename(doomed)  # first out of sight: a half-deleted checkpoint must not look like one
                shutil.rmtree(doomed, ignore_errors=True)

    def _clean(self) -> None:
        """Remove what a killed writer left; a checkpoint that it had moved aside to replace it is put back."""
        for path in self.root.iterdir():
            if not (found := _TEMPORARY.fullmatch(path.name)):
                continue
            if found[2] == "old" and not (self.root / found[1]).exists():
                path.rename(self.root / found[1])
            else:
                shutil.rmtree(path, ignore_errors=True)


def load(folder: Path, *, fingerprint: str | None = None, hashes: bool = True) -> dict[str, Any]:
    """Return {"state", "rng"} of a checkpoint after checking every file against its hash (`hashes`: of several processes, one does).

    Raises CheckpointError when the folder is no checkpoint, is damaged, or was written under another configuration than `fingerprint`.
    """
    folder = Path(folder)
    try:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        files, step, written_under = meta["files"], meta["step"], meta["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{folder} is no checkpoint: its meta.json is missing or unreadable ({type(e).__name__}: {e})") from e
    if meta.get("format") != _FORMAT:
        raise CheckpointError(f"{folder} has checkpoint format {meta.get('format')}, this version of agentgym reads {_FORMAT}")
    if fingerprint is not None and written_under != fingerprint:
        raise CheckpointError(
            f"{folder} belongs to another configuration (fingerprint {written_under}, now {fingerprint}): "
            "resume with the run's own configuration, or start a new run from the folder's model"
        )
    for name, digest in files.items() if hashes else ():
        path = folder / name
        what = "is missing" if not path.is_file() else "is damaged (its sha256 differs)" if _sha256(path) != digest else ""
        if what:
            raise CheckpointError(f"{path} {what}. Delete {folder.name} to resume from the checkpoint before step {step}")
    return torch.load(folder / "trainer.pt", map_location="cpu", weights_only=True)


def newest(root: Path, kind: str = "step") -> Path | None:
    """Return the checkpoint of the highest step under `root`; `kind` is "step" or "best"."""
    found = _all(Path(root), kind)
    return found[-1] if found else None


def _all(root: Path, kind: str) -> list[Path]:
    """Return the checkpoints of a kind, oldest first."""
    named = [(int(m[2]), p) for p in (root.iterdir() if root.is_dir() else ()) if (m := _NAME.fullmatch(p.name)) and m[1] == kind]
    return [p for _, p in sorted(named)]


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as f:
            json.dump(value, f, indent=1, ensure_ascii=False)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _publish(temporary: Path, final: Path) -> None:
    """Give a finished folder its name. A folder cannot replace another in one step, so an old one is moved aside for that moment."""
    aside = final.with_name(f"{final.name}.old-{os.getpid()}")
    if final.exists():
        final.rename(aside)
    try:
        temporary.rename(final)
    except OSError:
        if aside.exists():
            aside.rename(final)
        raise
    _sync(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _seal(folder: Path) -> dict[str, str]:
    """Force every file to disk and return relative name → sha256."""
    out = {}
    for path in sorted(folder.rglob("*")):
        _sync(path)
        if path.is_file():
            out[path.relative_to(folder).as_posix()] = _sha256(path)
    return out


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _lock(root: Path) -> Any:
    """Hold the folder for this process; the system lets go of it when the process ends, however it ends."""
    f = (root / ".lock").open("w")
    try:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        raise CheckpointError(f"another process is writing checkpoints to {root}: wait for it, or give this run another folder (run.dir)") from e
    return f


def _check_plain(value: Any, where: str) -> None:
    """Raise CheckpointError when a value could be saved but not be loaded again without running foreign code."""
    if isinstance(value, dict):
        for k, v in value.items():
            _check_plain(k, f"a key of {where}")
            _check_plain(v, f"{where}[{k!r}]")
    elif isinstance(value, list | tuple):
        for i, v in enumerate(value):
            _check_plain(v, f"{where}[{i}]")
    elif not (value is None or isinstance(value, torch.Tensor) or type(value) in (bool, int, float, str, bytes)):
        raise CheckpointError(f"{where} is a {type(value).__name__}; checkpoints hold tensors, numbers, strings, lists, tuples and dicts only")


def rng_state() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and torch as plain values."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    numpy = (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss)
    cuda = list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else []
    return {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state(), "cuda": cuda}


def set_rng_state(state: dict[str, Any]) -> None:
    """Put the global generators back to what `rng_state` returned; CUDA's only where the number of devices is the same."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def versions() -> dict[str, str]:
    """Return the versions of what a checkpoint depends on."""
    found = {n: importlib.metadata.version(n) for n in ("torch", "transformers", "numpy")}
    return {"agentgym": __version__, "python": platform.python_version(), **found}
