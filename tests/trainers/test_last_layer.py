"""The last states of some tokens: the numbers and gradients of all of them, for a part of the work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentgym.trainers.last_layer import last_states, only

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
KNOWN = ["Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3"]
IDS = torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(0))
INDEX = torch.tensor([1, 2, 11, 17, 30, 35])


def model_of(family: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **changes)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def passed(decoder: Any, index: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the states, and how many tokens went through the last feed-forward part."""
    seen = []
    hook = decoder.layers[-1].mlp.register_forward_hook(lambda m, args, out: seen.append(args[0].shape[:-1].numel()))
    out = last_states(decoder, index, IDS)
    hook.remove()
    return out, sum(seen)


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum().backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", KNOWN)
def test_numbers_and_gradients_are_those_of_all_tokens(family: str) -> None:
    decoder = model_of(family).get_decoder()
    found, tokens = passed(decoder, INDEX)
    assert tokens == len(INDEX)
    expected = decoder(input_ids=IDS, use_cache=False).last_hidden_state.flatten(0, 1)[INDEX]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    mine, plain = gradients(decoder, found), gradients(decoder, expected)
    assert mine.keys() == plain.keys() and len(mine) > 10
    for name in plain:
        torch.testing.assert_close(mine[name], plain[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("Granite", {"residual_multiplier": 0.5}), ("Gemma2", {"head_dim": 8}), ("Olmo2", {}), ("Qwen3", {"saving": True})],
)
def test_what_is_not_known_is_computed_whole(family: str, changes: dict[str, Any]) -> None:
    """Layers that do something else in between, and those that are computed again in the backward pass."""
    saving = changes.pop("saving", False)
    model = model_of(family, **changes)
    if saving:
        model.gradient_checkpointing_enable()
        model.train()
    decoder = model.get_decoder()
    found, tokens = passed(decoder, INDEX)
    assert tokens == IDS.numel()
    model.eval()
    torch.testing.assert_close(found, decoder(input_ids=IDS, use_cache=False).last_hidden_state.flatten(0, 1)[INDEX])


def test_where_nearly_all_are_wanted_nothing_is_picked() -> None:
    decoder = model_of("Qwen3").get_decoder()
    assert passed(decoder, torch.arange(31))[1] == 31 and passed(decoder, torch.arange(32))[1] == 36


def test_the_layer_is_whole_again_whatever_happens() -> None:
    decoder = model_of("Qwen3").get_decoder()
    with pytest.raises(RuntimeError, match="on the way"), only(decoder, INDEX, 36) as trimmed:
        assert trimmed
        raise RuntimeError("on the way")
    assert "forward" not in decoder.layers[-1].__dict__
    assert decoder(input_ids=IDS).last_hidden_state.shape == (3, 12, 32)


def test_adapters_are_part_of_the_layer() -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model_of("Qwen3"), peft.LoraConfig(target_modules="all-linear", init_lora_weights=False))
    decoder = adapted.get_base_model().get_decoder()
    found, tokens = passed(decoder, INDEX)
    assert tokens == len(INDEX)
    torch.testing.assert_close(found, decoder(input_ids=IDS, use_cache=False).last_hidden_state.flatten(0, 1)[INDEX], atol=1e-6, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 35), max_size=40))
def test_any_choice_in_any_order(places: list[int]) -> None:
    decoder = model_of("Llama").get_decoder()
    index = torch.tensor(places, dtype=torch.int64)
    found, _ = passed(decoder, index)
    expected = decoder(input_ids=IDS, use_cache=False).last_hidden_state.flatten(0, 1)[index]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
