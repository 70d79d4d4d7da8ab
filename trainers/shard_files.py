"""Checkpoints of a sharded run: every process writes its part, any number of them can read it, and one folder in Hugging Face format comes out.

checkpoints/step-000012/
    shards/                 weights and optimizer state, torch.distributed.checkpoint
    trainer.pt              all else, as in every checkpoint; a sharded tensor is a note there that says where it is
    model/                  Hugging Face format: with the best checkpoint and at the end of each stage; `agentgym export` makes the others
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import checkpoint
from torch.distributed.tensor import DTensor, empty
from torch.distributed.tensor.placement_types import Placement, Replicate
from torch.distributed.tensor.placement_types import Shard as SplitAlong

from agentgym.errors import CheckpointError

from .checkpoint import Checkpoints, load, newest, set_rng_state
from .model import save_model
from .ops import full
from .session import Session
from .setup import model_of
from .shard import Sharded

_NOTE = "sharded tensor"  # key of a note in trainer.pt: {_NOTE: name, "shape", "dtype", "dim": the dimension that it is split along}
SHARDS = "shards"


class ShardedCheckpoints:
    """The checkpoint folder of a sharded run, which all its processes see; what it promises is what Checkpoints does, whose options it takes.

    All processes call `save` and `load_latest` together.
    """

    def __init__(self, root: Path, sharded: Sharded, *, keep_last: int, fingerprint: str) -> None:
        self.root, self.sharded, self.ranks, self.fingerprint = Path(root), sharded, sharded.ranks, fingerprint
        self._own = Checkpoints(root, keep_last=keep_last, fingerprint=fingerprint) if self.ranks.first else None

    def save(self, step: int, tokenizer: Any | None, state: dict[str, Any], *, best: bool = False) -> Path:
        """Write one checkpoint and return its folder; with a tokenizer, the model in Hugging Face format too.

        Raises CheckpointError in every process when anything fails in one; earlier checkpoints are untouched then.
        """
        tensors = weights(self.sharded)
        plain = take_apart(state, "state", tensors)
        failure, folder = "", Path()
        if self._own is None:
            failure = self._part(self.ranks.agree(None), tensors, tokenizer)
        else:
            met = False

            def write(model: Path) -> None:
                nonlocal met
                met = True
                if failed := self._part(self.ranks.agree(str(model.parent)), tensors, tokenizer):
                    raise CheckpointError(failed)

            try:
                folder = self._own.save(step, write, plain, best=best)
            except CheckpointError as e:
                failure = str(e)
                if not met:
                    self.ranks.agree(None)
        failures = [x for x in self.ranks.gather(failure) if x]
        if failures:
            raise CheckpointError(failures[0])
        return Path(self.ranks.agree(str(folder)))

    def _part(self, folder: str | None, tensors: dict[str, Tensor], tokenizer: Any | None) -> str:
        """Write this process's part into `folder`, and the whole model where it is asked for; return why not."""
        if folder is None:
            return ""  # process 0 could not even begin, and says so itself
        try:
            self.sharded.save(Path(folder) / SHARDS, tensors)
            if tokenizer is not None:
                export(self.sharded, tokenizer, Path(folder) / "model")
        except Exception as e:  # the others wait for a word
            return f"{type(e).__name__}: {e}"
        return ""

    def latest(self) -> Path | None:
        """Return the newest checkpoint to resume from."""
        return newest(self.root, "step")

    def best(self) -> Path | None:
        """Return the newest checkpoint that was saved as the best."""
        return newest(self.root, "best")

    def load_latest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return (folder, state) of the newest checkpoint, with the model's weights as it has them, or None; random generators go on from there."""
        found = self.ranks.agree(str(self.latest() or ""))
        if not found:
            return None
        folder = Path(found)
        saved = load(folder, fingerprint=self.fingerprint, hashes=self.ranks.first)
        if not (folder / SHARDS).is_dir():
            raise CheckpointError(f"{folder} was not written by a sharded run: go on as the run began, without torchrun")
        set_rng_state(saved["rng"])
        tensors = weights(self.sharded)
        state = put_together(saved["state"], self.sharded, tensors)
        self.sharded.load(folder / SHARDS, tensors)
        return folder, state

    def close(self) -> None:
        """Let other runs have the folder."""
        if self._own:
            self._own.close()


def weights(sharded: Sharded) -> dict[str, Tensor]:
    """Return the trained weights by the names that they have on disk."""
    return {f"model.{n}": p.detach() for n, p in sharded.model.named_parameters() if p.requires_grad}


def take_apart(value: Any, name: str, into: dict[str, Tensor]) -> Any:
    """Return `value` with a note in place of every sharded tensor, which goes `into` the tensors under the note's name."""
    if isinstance(value, dict):
        return {k: take_apart(v, f"{name}.{k}", into) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(take_apart(v, f"{name}.{i}", into) for i, v in enumerate(value))
    if not isinstance(value, DTensor):
        return value
    into[name] = value.detach()
    last = value.placements[-1]
    dim = last.dim if isinstance(last, SplitAlong) else None
    return {_NOTE: name, "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."), "dim": dim}


def put_together(value: Any, sharded: Sharded, into: dict[str, Tensor]) -> Any:
    """Return `value` with an empty sharded tensor in place of every note, split over the processes that there are now; also `into` the tensors."""
    if isinstance(value, dict) and _NOTE in value:
        last: Placement = Replicate() if value["dim"] is None else SplitAlong(value["dim"])
        placements = [*(Replicate() for _ in range(sharded.mesh.ndim - 1)), last]
        made = empty(*value["shape"], dtype=getattr(torch, value["dtype"]), device_mesh=sharded.mesh, placements=placements)
        into[value[_NOTE]] = made
        return made
    if isinstance(value, dict):
        return {k: put_together(v, sharded, into) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(put_together(v, sharded, into) for v in value)
    return value


def export(sharded: Sharded, tokenizer: Any, folder: Path) -> None:
    """Write the model in Hugging Face format, of one with adapters these alone: all processes give their parts, process 0 writes."""
    model: Any = sharded.model
    adapters = hasattr(model, "disable_adapter")
    state = {}
    for name, x in model.state_dict().items():
        if not adapters or ".lora_" in name:
            whole = full(x)
            if sharded.ranks.first:
                state[name] = whole.cpu()
    if sharded.ranks.first:
        save_model(model, tokenizer, folder, state=state)


def export_command(source: Path, folder: Path | None) -> Path:
    """Write the model of a sharded checkpoint, or of a run's newest, in Hugging Face format, in this one process; return the folder."""
    found = newest(source / "checkpoints") if (source / "checkpoints").is_dir() else source
    if found is None or not (found / SHARDS).is_dir():
        raise CheckpointError(f"{found or source} holds no shards: only runs of several devices need this, the others save whole models")
    config = Session.config_of(found.parent.parent)
    model, tokenizer = model_of(config, "cpu")
    tensors = {f"model.{n}": p.detach() for n, p in model.named_parameters() if p.requires_grad}
    checkpoint.load(tensors, checkpoint_id=found / SHARDS, no_dist=True)
    return save_model(model, tokenizer, folder or found / "model")
