"""Two tokens taken out of the language, so that the difference of their logits can carry a value (SAPO, arXiv 2608.19842).

Nothing may write them: a hook on the output head makes their logits so low that their probability is exactly 0, for whoever asks the model.
Their rows of the head go on being trained, by the value alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from jinja2.exceptions import TemplateError
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from agentgym.errors import ConfigError

from .forward import features

KEY = "agentgym_reserved"  # in the model's config: {"plus": id, "minus": id, "scale": τ_v}
FILE = f"{KEY}.json"  # the same beside adapters, whose folder has no model config
# exp(−1e9) is 0 in every format, and 0 · 1e9 is 0 in an entropy, where 0 · ∞ is not a number.
_FLOOR = -1e9
_UNUSED = re.compile(r"reserved|unused|extra_id|placeholder|dummy|gh_stars|jupyter_", re.IGNORECASE)
# These never occur in UTF-8, the last two not even in what UTF-8 once was.
_NO_UTF8 = (0xFE, 0xFF, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xC0, 0xC1)
_ROLES = (["system", "user", "assistant", "tool", "user"], ["system", "user", "assistant", "user"], ["user", "assistant", "user"])


class Ban:
    """Forward hook of an output head: the logits of `ids` become very low. A class of a module, so that it travels to other processes."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = tuple(ids)

    def __call__(self, head: nn.Module, args: Any, logits: Tensor) -> Tensor:
        # In place: the head's backward pass does not need its output, and a copy of [tokens, V] is large.
        return logits.index_fill_(-1, torch.tensor(self.ids, device=logits.device), max(_FLOOR, torch.finfo(logits.dtype).min / 4))


def reserve(model: nn.Module, tokenizer: PreTrainedTokenizerFast, plus: int, minus: int, scale: float) -> None:
    """Take two tokens out of the language, in place: from now on `model` gives them probability 0, in sampling, log-probabilities and entropy.

    plus, minus  ids of w+ and w−;  scale  τ_v, which divides the difference of their logits. A pair that was reserved before is given back.
    The model's config carries all three, so that a saved model that is loaded again is the same. Other programs do not know of it: there the
    tokens have to be suppressed by hand.
    Raises ConfigError on tokens that the chat needs, and on a model whose logits are not those of its output head.
    """
    for token in (plus, minus):
        _check(model, tokenizer, token)
    if plus == minus or scale <= 0:
        raise ConfigError(f"the two reserved tokens must differ and their scale must be positive; got {plus}, {minus} and {scale}")
    if not _apart(model, plus, minus):
        raise ConfigError(
            f"the tokens {plus} and {minus} have nearly the same row in the output head, which is frozen (adapters), so no value could be read "
            "from their difference: name two others (critic.tokens)"
        )
    ids = torch.zeros(1, 1, dtype=torch.int64, device=_head(model).weight.device)
    hidden, _ = features(model, ids, ids[0])
    if hidden.shape[-1] != _head(model).weight.shape[-1]:
        raise ConfigError(f"{type(_inner(model)).__name__} changes its logits after the output head, or hides it: no token can be taken out there")
    setattr(_inner(model).config, KEY, {"plus": plus, "minus": minus, "scale": float(scale)})
    restore(model)


def restore(model: nn.Module) -> None:
    """Put the ban on the head that the model's config asks for, once; without a reservation nothing happens."""
    found = reserved(model)
    if found is None:
        return
    hooks = _head(model)._forward_hooks
    for key in [k for k, hook in hooks.items() if isinstance(hook, Ban)]:
        del hooks[key]
    _head(model).register_forward_hook(Ban((found["plus"], found["minus"])))


def reserved(model: nn.Module) -> dict[str, Any] | None:
    """Return {"plus": id, "minus": id, "scale": τ_v}, or None when nothing is reserved."""
    return getattr(getattr(_inner(model), "config", None), KEY, None)


def write(model: nn.Module, folder: Path) -> None:
    """Write the reservation beside saved adapters, if there is one."""
    if reserved(model) is not None:
        (folder / FILE).write_text(json.dumps(reserved(model)), "utf-8")


def read(model: nn.Module, folder: Path) -> None:
    """Restore what `write` wrote, if anything."""
    if (folder / FILE).is_file():
        setattr(_inner(model).config, KEY, json.loads((folder / FILE).read_text("utf-8")))
        restore(model)


def probe(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the function from hidden states [M, D] to values [M] float32, p = clip((z_w+ − z_w−)/τ_v, −1, 1).  arXiv 2608.19842 v1

    Differentiable in the hidden states and in the two rows of the head; the other logits are not computed. OURS: the clip does not stop the
    gradient, since a value beyond ±1 could never come back (v3 of the paper has no clip). Raises ConfigError when no tokens are reserved.
    """
    found = reserved(model)
    if found is None:
        raise ConfigError("a value is asked of a model that has no reserved tokens: choose the critic that reserves them (critic: autoregressive)")
    head, plus, minus, scale = _head(model), found["plus"], found["minus"], found["scale"]

    def value(hidden: Tensor) -> Tensor:
        z = hidden.float() @ (head.weight[plus].float() - head.weight[minus].float())
        if getattr(head, "bias", None) is not None:
            z = z + (head.bias[plus] - head.bias[minus]).float()
        z = z / scale
        return z + (z.clamp(-1, 1) - z).detach()

    return value


def point(model: nn.Module, direction: Tensor) -> None:
    """Set the two rows, in place, so that p = clip(direction · hidden, −1, 1); direction [D]. Their mean stays as it was.

    Raises ConfigError when the head is frozen.
    """
    found, head = reserved(model), _head(model)
    if found is None or not trained(model):
        raise ConfigError("the rows of the reserved tokens cannot be set: the output head is frozen (adapters), or nothing is reserved")
    pair = [found["plus"], found["minus"]]
    half = found["scale"] / 2 * torch.stack([direction, -direction])
    with torch.no_grad():
        head.weight[pair] = (head.weight[pair].double().mean(0) + half.to(head.weight.device)).to(head.weight.dtype)
        if getattr(head, "bias", None) is not None:
            head.bias[pair] = head.bias[pair].mean()


def trained(model: nn.Module) -> bool:
    """Return whether the rows of the head take a gradient."""
    return bool(_head(model).weight.requires_grad)


def choose(model: nn.Module, tokenizer: PreTrainedTokenizerFast) -> tuple[int, int]:
    """Return two tokens (plus, minus) that no text needs: OURS.

    In this order: those that are reserved already; rows of the head that the tokenizer has no token for; special tokens that are called unused,
    reserved or the like; bytes that no UTF-8 text has. Raises ConfigError when there are none.
    """
    found = reserved(model)
    if found is not None:
        return found["plus"], found["minus"]
    taken = _needed(model, tokenizer)
    for pool in (_spare(model, tokenizer), _unused(tokenizer), _bytes(tokenizer)):
        pair = [i for i in pool if i not in taken][:2]
        if len(pair) == 2 and _apart(model, *pair):
            return pair[0], pair[1]
    raise ConfigError(
        "the tokenizer has no two tokens that are never used (no spare rows, no unused special tokens, no spare bytes): name two that your "
        "task does without, critic.tokens=[A,B], as texts or ids"
    )


def _spare(model: nn.Module, tokenizer: PreTrainedTokenizerFast) -> Iterator[int]:
    """Yield rows that only pad the vocabulary to a round number, the last first."""
    known = set(tokenizer.get_vocab().values())
    return (i for i in range(len(_head(model).weight) - 1, -1, -1) if i not in known)


def _unused(tokenizer: PreTrainedTokenizerFast) -> Iterator[int]:
    return (i for i, t in sorted(tokenizer.added_tokens_decoder.items()) if t.special and _UNUSED.search(t.content))


def _bytes(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the tokens of bytes that UTF-8 never has: of byte-level vocabularies, or of those that fall back on bytes."""
    vocabulary = tokenizer.get_vocab()
    # A byte-level alphabet writes these bytes as the character of the same number; elsewhere that character is a letter.
    byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)
    names = [(f"<0x{b:02X}>", *([chr(b)] if byte_level else [])) for b in _NO_UTF8]
    return [vocabulary[n] for both in names for n in both if n in vocabulary]


def _check(model: nn.Module, tokenizer: PreTrainedTokenizerFast, token: int) -> None:
    rows = len(_head(model).weight)
    if not 0 <= token < rows:
        raise ConfigError(f"the token {token} cannot be reserved: the output head has the ids 0 to {rows - 1}")
    if token in _needed(model, tokenizer):
        raise ConfigError(f"the token {token}, {tokenizer.convert_ids_to_tokens(token)!r}, cannot be reserved: it ends turns or belongs to the chat")


def _needed(model: nn.Module, tokenizer: PreTrainedTokenizerFast) -> set[int]:
    """Return the tokens that end, pad and structure a chat."""
    ends = getattr(getattr(_inner(model), "generation_config", None), "eos_token_id", None)
    found = {*(ends if isinstance(ends, list | tuple) else [ends]), tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id}
    template = tokenizer.chat_template
    if not template:
        return found - {None}
    found |= {i for i, t in tokenizer.added_tokens_decoder.items() if t.special and t.content in str(template)}
    for roles in _ROLES:
        try:
            text = tokenizer.apply_chat_template([{"role": r, "content": "x"} for r in roles], tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError, ValueError):  # not every template takes every role
            continue
        found |= set(tokenizer(text, add_special_tokens=False)["input_ids"])
    return found - {None}


def _apart(model: nn.Module, plus: int, minus: int) -> bool:
    """Return whether a value can be read from the two rows: a frozen head cannot pull equal ones apart."""
    weight = _head(model).weight
    with torch.no_grad():
        return bool(trained(model) or (weight[plus] - weight[minus]).norm() > 0.1 * weight.norm(dim=1).median())


def _head(model: nn.Module) -> Any:
    """Return the output head itself. Raises ConfigError when there is none, or when it has adapters of its own."""
    head = getattr(_inner(model), "get_output_embeddings", lambda: None)()
    if head is None or getattr(head, "weight", None) is None:
        raise ConfigError(f"{type(_inner(model)).__name__} has no output head whose rows are the tokens, so none can be reserved")
    if hasattr(head, "base_layer") or hasattr(head, "modules_to_save"):
        raise ConfigError("the output head has adapters, so its rows are not the logits' own: leave it out of model.lora.target_modules")
    return head


def _inner(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model
