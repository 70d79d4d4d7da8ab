"""Muon on the hidden matrices, AdamW on embeddings, head, gains and biases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..ops import full
from .adamw import adamw

_NOT_HIDDEN = ("embed", "lm_head", "wte", "wpe")  # 2-D tables whose rows are tokens: orthogonalising these makes no sense


class Muon(torch.optim.Muon):
    """torch's Muon. A sharded matrix is made whole for its iteration, by every process for itself, and each takes its own rows of the result."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all matrices that have a gradient."""
        sharded = [(p, g) for g in self.param_groups for p in g["params"] if p.grad is not None and hasattr(p, "full_tensor")]
        if not sharded:
            return super().step(closure)
        for p, group in sharded:
            momentum = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p.grad))
            momentum.lerp_(p.grad, 1 - group["momentum"])
            direction = _orthogonal(full(p.grad.lerp(momentum, group["momentum"])), group)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(_rows(direction, p), alpha=-group["lr"])
        return None


def _orthogonal(whole: Tensor, group: dict[str, Any]) -> Tensor:
    """Return what torch's Muon takes off a matrix [rows, columns] at learning rate 1 for the direction `whole`."""
    blank = nn.Parameter(torch.zeros_like(whole))
    blank.grad = whole
    options = {k: group[k] for k in ("ns_coefficients", "ns_steps", "eps", "adjust_lr_fn")}
    torch.optim.Muon([blank], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False, **options).step()
    return -blank.data


def _rows(whole: Tensor, like: Any) -> Tensor:
    """Return a matrix, which every process has, sharded as `like` is."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)


class Pair:
    """Two optimizers that act as one."""

    def __init__(self, **members: torch.optim.Optimizer) -> None:
        self.members = members

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [g for o in self.members.values() for g in o.param_groups]

    def step(self) -> None:
        for o in self.members.values():
            o.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for o in self.members.values():
            o.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {n: o.state_dict() for n, o in self.members.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for n, o in self.members.items():
            o.load_state_dict(state_dict[n])


def muon(
    params: Iterable[tuple[str, nn.Parameter]],
    *,
    lr: float = 1e-3,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
    adam_lr: float | None = None,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
) -> Pair:
    """Return Muon for hidden 2-D parameters and AdamW for all others.  arXiv 2502.16982 (scaling); K. Jordan, 2024

    The update O = NewtonSchulz5(momentum of G) is scaled by 0.2·√max(rows, columns), so that its size matches AdamW's and one `lr` serves
    both; `adam_lr` sets the other one apart. Raises ValueError when there is no hidden matrix.
    """
    trained = [(n, p) for n, p in params if p.requires_grad]
    hidden = [p for n, p in trained if p.ndim == 2 and not any(k in n for k in _NOT_HIDDEN)]
    chosen = {id(p) for p in hidden}
    rest = [(n, p) for n, p in trained if id(p) not in chosen]
    if not hidden:
        raise ValueError("muon found no hidden 2-D parameter that takes a gradient; use adamw")
    members: dict[str, torch.optim.Optimizer] = {
        "muon": Muon(hidden, lr=lr, momentum=momentum, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    }
    if rest:
        members["adamw"] = adamw(rest, lr=lr if adam_lr is None else adam_lr, betas=betas, weight_decay=weight_decay, eps=eps)
    return Pair(**members)
