"""The trainer's weights as an engine reads them: parameters under their Hugging Face names, in a file or one by one; adapters in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from ..model import base_model

_SHARED = Path("/dev/shm")
_PREFIX = "agentgym-push-"


def named(model: nn.Module, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) of the base model's parameters, adapters left out, each shared tensor once; `dtype` where it is to be changed.

    A sharded parameter (DTensor) is gathered, one at a time.
    """
    for name, p in base_model(model).named_parameters():  # a tied head is in there once, as the embedding
        if ".lora_" in name:
            continue
        gather = getattr(p, "full_tensor", None)
        whole = (gather() if gather else p).detach()
        yield name.replace(".base_layer.", "."), whole if dtype is None else whole.to(dtype)


def write(model: nn.Module, path: Path, dtype: torch.dtype | None = None) -> Path:
    """Write the base model's parameters as one safetensors file, which appears whole or not at all."""
    from safetensors.torch import save_file

    temporary = path.with_suffix(".tmp")
    save_file({n: t.contiguous() for n, t in named(model, dtype)}, temporary)
    return temporary.replace(path)


def write_adapters(model: nn.Module, folder: Path) -> Path:
    """Write the adapters in PEFT's format."""
    model.save_pretrained(folder)  # type: ignore[operator]
    return folder


def has_adapters(model: nn.Module) -> bool:
    """Return whether only adapters are trained."""
    return hasattr(model, "merge_adapter")


def push_folder(wanted: str) -> Path:
    """Make the folder for pushed files: in the one asked for, in memory that is shared between processes, or among the temporary ones.

    What a killed process left in this machine's shared memory is removed: it would be lost to everybody until the next start.
    """
    if wanted:
        Path(wanted).mkdir(parents=True, exist_ok=True)
    elif _SHARED.is_dir():
        _sweep(_SHARED)
    home = wanted or (_SHARED if _SHARED.is_dir() and shutil.disk_usage(_SHARED).free > 2**30 else None)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=home))


def _sweep(home: Path) -> None:
    """Remove the push folders of processes that are no more."""
    for folder in home.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (ValueError, OSError):  # no folder of ours, or somebody else's process
            continue
