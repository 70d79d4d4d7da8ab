"""How much memory a run needs on each device, worked out on a model without weights: nothing is loaded, nothing is computed.

What is counted is what tensors hold; what an allocator loses between them, and what libraries keep for themselves, comes on top (a tenth is usual).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from agentgym import registry
from agentgym.config import Config, Plugin
from agentgym.errors import ConfigError

from . import forward
from .model import DTYPES, Lora, Tiny, checked_options
from .shard import layers_of

_SPAN = 64  # tokens of the pass that is watched


def _qwen2(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int, tied: bool) -> Qwen2Config:
    return Qwen2Config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=ffn,
        vocab_size=vocab, tie_word_embeddings=tied, max_position_embeddings=32_768,
    )  # fmt: skip


# Sizes of models whose files need not be here for a plan, from their published configurations.
KNOWN: dict[str, Any] = {
    "smollm2": LlamaConfig(
        hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536,
        vocab_size=49_152, tie_word_embeddings=True, max_position_embeddings=8192,
    ),
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen2(896, 24, 14, 2, 4864, 151_936, True),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen2(1536, 28, 12, 2, 8960, 151_936, True),
    "Qwen/Qwen2.5-3B-Instruct": _qwen2(2048, 36, 16, 2, 11_008, 151_936, True),
    "Qwen/Qwen2.5-7B-Instruct": _qwen2(3584, 28, 28, 4, 18_944, 152_064, False),
    "Qwen/Qwen2.5-14B-Instruct": _qwen2(5120, 48, 40, 8, 13_824, 152_064, False),
}  # fmt: skip


def shape_of(section: Plugin) -> Any:
    """Return the transformers configuration of a model by name. Raises ConfigError when neither its files nor its sizes are here."""
    if section.name in KNOWN:
        return copy.deepcopy(KNOWN[section.name])
    if section.name == "tiny":
        own = {k: v for k, v in section.options.items() if k in Tiny.__dataclass_fields__}
        t: Tiny = checked_options(Tiny, "tiny", own)
        return Qwen3Config(
            hidden_size=t.hidden, num_hidden_layers=t.layers, num_attention_heads=t.heads, num_key_value_heads=t.kv_heads, head_dim=t.head_dim,
            intermediate_size=t.ffn, vocab_size=t.vocab, tie_word_embeddings=True, max_position_embeddings=t.max_positions,
        )  # fmt: skip
    try:
        return AutoConfig.from_pretrained(section.name)
    except Exception as e:
        raise ConfigError(
            f"model {section.name!r}: its size is not known, since its config.json can be read neither here nor from the hub "
            f"({str(e).splitlines()[0][:200]}). Known without files: {', '.join(sorted(KNOWN))}, tiny"
        ) from None


def skeleton(section: Plugin) -> nn.Module:
    """Return the model without its weights, in its format; adapters stand as `lora` parameters beside each adapted layer, the rest frozen."""
    model = _empty(shape_of(section), DTYPES[section.options.get("dtype", "float32")])
    lora = section.options.get("lora")
    if lora is not None:
        o: Lora = checked_options(Lora, "lora", lora)
        model.requires_grad_(False)
        head = model.get_output_embeddings()
        for name, module in list(model.named_modules()):
            wanted = not o.target_modules or any(name == t or name.endswith(f".{t}") for t in o.target_modules)
            if isinstance(module, nn.Linear) and module is not head and wanted:
                for which, shape in (("lora_A", (o.r, module.in_features)), ("lora_B", (module.out_features, o.r))):
                    module.register_parameter(which, nn.Parameter(torch.empty(shape, device="meta")))
    return model


def _empty(config: Any, dtype: torch.dtype) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, by what they are for: what is always there, and what comes on top in an update and while episodes are played."""

    always: dict[str, float]
    update: dict[str, float]
    play: dict[str, float]

    def peak(self) -> float:
        """Return the most that is there at one time."""
        return sum(self.always.values()) + max(sum(self.update.values()), sum(self.play.values()))


def estimate(config: Config, model: nn.Module, *, ranks: int, reference: bool, context: int) -> Memory:
    """Return what one stage needs on each of `ranks` devices (0: one process, unsharded).

    model      from `skeleton`
    reference  it keeps a frozen copy of the weights
    context    ids of the longest context
    """
    s = config.shard
    split = (s.group or ranks) if ranks else 1
    width = DTYPES[s.compute].itemsize if ranks and s.compute != "float32" else next(model.parameters()).element_size()
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    weights, gradients = size(model.parameters()), size(p for _, p in trained)
    adapters = any(not p.requires_grad for p in model.parameters())
    always = {"weights": weights / split, "optimizer state": optimizer_state(config, trained) / split}
    if reference and not adapters:
        always["frozen reference"] = gradients / split
    layers = layers_of(model)
    inner = sum(p.numel() for m in layers for p in m.parameters())
    largest = max((sum(p.numel() for p in m.parameters()) for m in layers), default=0)
    outer = sum(p.numel() for p in model.parameters()) - inner
    budget = max(config.update.tokens_per_microbatch, 1)
    update: dict[str, float] = {"gradients": gradients / split}
    if ranks:
        update["gathered weights"] = (2 * largest + outer) * width  # one layer at work, the next on its way; embedding, norm and head
    kept, whole = activations(config.model, width)
    recompute = bool(config.model.options.get("gradient_checkpointing"))
    shape: Any = model.config
    hidden = shape.hidden_size * width
    update[f"activations of {budget:,} tokens"] = budget * (len(layers) * (hidden if recompute else whole) + (whole if recompute else 0) + kept)
    vocabulary = int(shape.vocab_size)
    update["logits of a chunk"] = min(budget * vocabulary, forward._MAX_LOGITS) * (
        width + 3 * 4
    )  # as they come, in float32, their softmax and its gradient
    play: dict[str, float] = {"gathered weights": (inner + outer) * width} if ranks else {}
    if registry.needs_model(config.policy.name):
        places = _places(config, max(ranks, 1))
        play[f"keys and values of {places} contexts of {context:,}"] = places * context * cache_per_token(model, width)
    if s.offload:
        always = {}  # it lies in the host's memory
        update.pop("gradients")
    return Memory(always, update, play)


def _places(config: Config, ranks: int) -> int:
    """Return how many conversations a process holds at once."""
    r = config.rollout
    return min(int(config.policy.options.get("slots", 256)), -(-r.concurrency // ranks), -(-r.tasks // ranks) * r.group_size)


def size(tensors: Iterator[nn.Parameter] | Iterator[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)


def cache_per_token(model: nn.Module, width: int) -> int:
    """Return the bytes of keys and values of one token."""
    c: Any = model.config
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    return int(2 * c.num_hidden_layers * c.num_key_value_heads * head * width)


def optimizer_state(config: Config, trained: list[tuple[str, nn.Parameter]]) -> int:
    """Return the bytes that the optimizer keeps: it takes a step over parameters that have no content."""
    twins = [(n, nn.Parameter(torch.empty_like(p))) for n, p in trained]
    optimizer = registry.bind("optimizer", config.optimizer.name, config.optimizer.options)(twins)
    for _, p in twins:
        p.grad = torch.empty_like(p)
    optimizer.step()
    return size(x for x in _tensors(optimizer.state_dict()) if x.device.type == "meta")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for x in value.values() if isinstance(value, dict) else value:
            yield from _tensors(x)


class _Attention(torch.autograd.Function):
    """Keeps for the backward pass what a fused attention keeps: queries, keys, values and the result, never the scores."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = query.new_empty(*query.shape[:3], value.shape[3])
        ctx.save_for_backward(query, key, value, out)
        return out


def _attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **rest: Any) -> tuple[Tensor, None]:
    return _Attention.apply(query, key, value).transpose(1, 2), None


_NAME = "agentgym_counted"
AttentionInterface.register(_NAME, _attend)


def activations(section: Plugin, width: int) -> tuple[float, float]:
    """Return the bytes per token that a pass keeps for its backward pass: (outside of the layers, in one layer); `width` bytes a number.

    Found by watching what passes of one and of two layers keep, on a model without weights; weights themselves are not counted.
    """
    dtype = {4: torch.float32, 2: torch.bfloat16}[width]
    one, two = (_kept(section, n, dtype) for n in (1, 2))
    return max(2 * one - two, 0) / _SPAN, (two - one) / _SPAN


def _kept(section: Plugin, layers: int, dtype: torch.dtype) -> int:
    config = shape_of(section)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _empty(config, dtype)
    model.config._attn_implementation = _NAME
    seen: dict[int, Tensor] = {}
    own = {p.untyped_storage()._cdata for p in model.parameters()}

    def watch(x: Tensor) -> Tensor:
        key = x.untyped_storage()._cdata
        if key not in own and (key not in seen or x.untyped_storage().nbytes() > seen[key].untyped_storage().nbytes()):
            seen[key] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(watch, lambda x: x):
        model.get_decoder()(input_ids=torch.zeros(1, _SPAN, dtype=torch.int64, device="meta"), use_cache=False)
    return sum(x.untyped_storage().nbytes() for x in seen.values())
