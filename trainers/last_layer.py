"""A decoder's last states of some tokens only: what nobody reads above the last attention is not computed.

Tokens speak to each other in attention alone. Behind that of the last layer each is on its own, so the last feed-forward part is needed where a
token was written, not where it was only read: in agents' episodes that is most of them. The fewer layers, the more it saves.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from torch import Tensor

# Layers of transformers that are: x + attention(norm(x)), then x + feed-forward(norm(x)). All others are computed whole.
_KNOWN = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer", "SmolLM3DecoderLayer"}


@contextlib.contextmanager
def only(decoder: Any, index: Tensor, tokens: int) -> Iterator[bool]:
    """Let the decoder return [1, m, D] instead of [B, L, D]: the tokens `index` [m] of the flattened [B · L], if it can; yield whether it does.

    tokens: B · L. It does not where nearly all of them are wanted, where the layer is not known, and where it is computed again in the backward
    pass (gradient checkpointing), when this context has ended.
    """
    layers = getattr(decoder, "layers", None)
    layer = layers[-1] if layers else None
    if layer is None or 8 * len(index) > 7 * tokens or getattr(layer, "gradient_checkpointing", False) or not _known(type(layer)):
        yield False
        return
    layer.forward = functools.partial(_forward, layer, index)
    try:
        yield True
    finally:
        del layer.forward


def last_states(decoder: Any, index: Tensor, input_ids: Tensor, **inputs: Any) -> Tensor:
    """Return [m, D] the last hidden states of the tokens `index` [m] of the flattened input_ids [B, L]."""
    with only(decoder, index, input_ids.numel()) as trimmed:
        out: Tensor = decoder(input_ids=input_ids, use_cache=False, **inputs).last_hidden_state.flatten(0, 1)
    return out if trimmed else out[index]


def _known(kind: Any) -> bool:
    home, name = kind.forward.__module__, kind.forward.__qualname__
    return home.startswith("transformers.models.") and name.split(".")[0] in _KNOWN


def _forward(layer: Any, index: Tensor, hidden_states: Tensor, *args: Any, **inputs: Any) -> Tensor:
    """What such a layer does, the second half of it for the tokens `index` only."""
    attended = layer.self_attn(layer.input_layernorm(hidden_states), *args, **inputs)[0]
    x = (hidden_states + attended).flatten(0, 1)[index][None]
    out: Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
    return out
