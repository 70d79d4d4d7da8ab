"""What produced a run: code, versions, seeds, hashes of the splits."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import agentgym
from agentgym.config import Config, fingerprint

PACKAGES = ("torch", "transformers", "tokenizers", "gymnasium", "numpy", "peft", "vllm", "textworld", "alfworld")


def manifest(config: Config, splits: dict[str, str]) -> dict[str, Any]:
    """Return the manifest of a run; `splits` maps split name → sha256 of its sorted task ids."""
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "agentgym": agentgym.__version__,
        "git": git_state(Path(agentgym.__file__).resolve().parents[1]),
        "fingerprint": fingerprint(config),
        "seed": config.run.seed,
        "splits": splits,
        "python": platform.python_version(),
        "packages": {p: v for p in PACKAGES if (v := version_of(p))},
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "cuda": torch.cuda.is_available()},
    }


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and whether the tree differs from it, or None outside a checkout."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True, timeout=10).stdout.strip()
