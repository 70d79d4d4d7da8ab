"""A copy of a language model's backbone with one number in place of the vocabulary."""

from __future__ import annotations

import copy
import re
from typing import Any, Literal

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError

from ..forward import MicroBatch, Rows

Freeze = Literal["none", "attention", "backbone"]
_MLP = re.compile(r"(^|\.)(mlp|ffn|feed_forward|fc1|fc2|experts|block_sparse_moe)(\.|$)")


class Net(nn.Module):
    """[rows, L] token ids → [rows, L] the value after each; the head starts at 0, the backbone where `model` stands, its adapters merged in.

    freeze  "none"; "attention": of the backbone only the MLPs learn; "backbone": nothing of it does
    """

    def __init__(self, model: nn.Module, freeze: Freeze) -> None:
        super().__init__()
        self.backbone = _backbone(model).eval().requires_grad_(freeze == "none")
        if freeze == "attention":
            for parameter in mlps(self.backbone):
                parameter.requires_grad_(True)
        width = int(self.backbone.config.get_text_config().hidden_size)
        self.head = nn.Linear(width, 1, device=next(self.backbone.parameters()).device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, ids: Tensor) -> Tensor:
        """Return [rows, L] float32. Causal attention never looks at padding to the right, so no mask is needed."""
        hidden = self.backbone(input_ids=ids, use_cache=False).last_hidden_state
        return self._value(hidden)

    def of(self, rows: MicroBatch) -> Tensor:
        """Return [cells] float32 the value after each cell of a micro-batch; `rows.at` points into them."""
        if isinstance(rows, Rows):
            found: Tensor = self(rows.ids)
            return found.flatten()
        from ..tree_attention import hidden

        return self._value(hidden(self.backbone, rows, torch.arange(rows.cells, device=rows.ids.device)))

    def _value(self, hidden: Tensor) -> Tensor:
        value: Tensor = self.head(hidden.float()).squeeze(-1)
        return value


def mlps(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a model's feed-forward layers (experts too), found by the names that transformers gives them."""
    return [p for n, p in model.named_parameters() if _MLP.search(n)]


def _backbone(model: Any) -> Any:
    """Return a copy of the decoder below the output head. Raises ConfigError when the model has no such part."""
    merged = hasattr(model, "get_base_model")
    inner = copy.deepcopy(model).merge_and_unload() if merged else model
    decoder = getattr(inner, "get_decoder", lambda: None)()
    if decoder is None or decoder is inner:
        raise ConfigError(f"critic 'head' needs the decoder below the output head; {type(inner).__name__} does not give it (get_decoder)")
    return decoder if merged else copy.deepcopy(decoder)
