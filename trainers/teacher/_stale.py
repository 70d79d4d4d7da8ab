"""A frozen copy of the policy that follows it in steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..streams import frozen


class Stale:
    """The policy as it was some updates ago. Only trained weights are copied; frozen ones, such as those under adapters, are shared."""

    def __init__(self, model: nn.Module, refresh: int) -> None:
        self.policy, self.refresh = model, refresh
        self.names = [n for n, p in model.named_parameters() if p.requires_grad]
        self.copy: nn.Module | None = None
        self.update = 0  # when it was copied

    def at(self, update: int) -> nn.Module:
        """Return the copy to use in this update, renewed where it is `refresh` updates old."""
        if self.copy is None or not self.update <= update < self.update + self.refresh:
            self._take(dict(self.policy.named_parameters()))
            self.update = update
        assert self.copy is not None
        return self.copy

    @torch.no_grad()
    def _take(self, weights: Mapping[str, Tensor]) -> None:
        if self.copy is None:
            self.copy = frozen(self.policy)
        mine = dict(self.copy.named_parameters())
        for name in self.names:
            mine[name].copy_(weights[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the copied weights (None before the first copy) and the update that they are of."""
        mine = dict(self.copy.named_parameters()) if self.copy is not None else None
        return {"update": self.update, "weights": mine and {n: mine[n].detach().clone() for n in self.names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.update = state["update"]
        if state["weights"] is not None:
            self._take(state["weights"])
