"""Reserved tokens: never drawn, no probability, a value with a gradient, and all of it survives copies and folders."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agentgym.errors import ConfigError
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.trainers import reserve
from agentgym.trainers.forward import features, logprobs
from agentgym.trainers.model import add_lora, base_model, load_model, save_model
from agentgym.trainers.policy.hf import hf
from agentgym.types import Sampling

SMALL: dict[str, Any] = {"layers": 1, "hidden": 32, "heads": 2, "head_dim": 16, "ffn": 48, "vocab": 264}
SIZE: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "initializer_range": 0.3, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None,
}  # fmt: skip


@pytest.fixture
def tiny() -> tuple[Any, PreTrainedTokenizerFast]:
    return load_model("tiny", corpus=["a b c"], **SMALL)


@pytest.fixture
def biased(tiny: tuple[Any, PreTrainedTokenizerFast]) -> tuple[Any, PreTrainedTokenizerFast, tuple[int, int]]:
    """A model that wants to write two tokens only: its head has a bias, large for them."""
    model, tokenizer = tiny
    plus, minus = reserve.choose(model, tokenizer)
    head = nn.Linear(32, len(tokenizer))
    nn.init.zeros_(head.bias)
    with torch.no_grad():
        head.bias[[plus, minus]] = torch.tensor([30.0, 28.0])
    model.set_output_embeddings(head)
    return model, tokenizer, (plus, minus)


def drawn(model: nn.Module, tokenizer: PreTrainedTokenizerFast, n: int) -> list[int]:
    """Return at least `n` tokens that the policy draws; turns are of 100 tokens at most."""
    policy = hf(model, Renderer(tokenizer))
    sampling = Sampling(max_tokens=100)

    async def play() -> list[int]:
        found: list[int] = []
        while len(found) < n:
            requests = [Request(f"e{len(found)}-{i}", len(found) + i, [5, 9, 11 + i]) for i in range(30)]
            found += [t for c in await asyncio.gather(*(policy.complete(r, sampling) for r in requests)) for t in c.tokens or ()]
        await policy.close()
        return found

    return asyncio.run(play())


def test_a_reserved_token_is_never_drawn(biased: Any) -> None:
    model, tokenizer, pair = biased
    assert set(drawn(model, tokenizer, 200)) == set(pair)  # before, nothing else is
    reserve.reserve(model, tokenizer, *pair, 10.0)
    found = drawn(model, tokenizer, 2000)
    assert len(found) >= 2000 and not set(pair) & set(found)
    assert len(set(found)) > 100


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_all_probability_is_elsewhere(biased: Any, temperature: float, dtype: torch.dtype) -> None:
    model, tokenizer, pair = biased
    model.to(dtype)
    reserve.reserve(model, tokenizer, *pair, 10.0)
    every = torch.arange(len(tokenizer))
    ids = torch.cat([torch.tensor([5, 9, 7]).expand(len(every), 3), every[:, None]], 1)
    with torch.no_grad():
        logp, entropy = logprobs(model, ids, torch.ones_like(ids, dtype=torch.bool), temperature=temperature, entropy=True)
    p = logp[:, -1].exp()
    assert p[list(pair)].tolist() == [0, 0]
    rest = torch.tensor([i not in pair for i in range(len(every))])
    torch.testing.assert_close(p[rest].sum(), torch.tensor(1.0), atol=1e-4, rtol=0)
    assert entropy is not None and torch.isfinite(entropy).all()
    torch.testing.assert_close(entropy[0, -1], -(p[rest] * logp[rest, -1]).sum(), atol=1e-3, rtol=1e-3)


def test_the_value_is_the_clipped_difference_of_the_two_logits(biased: Any) -> None:
    model, tokenizer, (plus, minus) = biased
    ids = torch.tensor([[5, 9, 7, 30], [8, 8, 200, 2]])
    logits = model(ids).logits.detach().clone()
    for scale, clips in ((10.0, False), (0.5, True)):
        reserve.reserve(model, tokenizer, plus, minus, scale)
        p = reserve.probe(model)(features(model, ids, torch.arange(8))[0])
        expected = ((logits[..., plus] - logits[..., minus]) / scale).clamp(-1, 1).flatten()
        torch.testing.assert_close(p, expected)
        assert bool((p.abs() == 1).any()) == clips


def test_the_values_gradient_reaches_the_backbone_and_the_two_rows_only(biased: Any) -> None:
    model, tokenizer, (plus, minus) = biased
    reserve.reserve(model, tokenizer, plus, minus, 10.0)
    reserve.probe(model)(features(model, torch.tensor([[5, 9, 7]]), torch.arange(3))[0]).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in model.named_parameters() if ".layers.0." in n)
    rows = model.get_output_embeddings().weight.grad.abs().sum(1).nonzero()[:, 0]
    assert set(rows.tolist()) == {plus, minus}


def test_a_value_beyond_its_bounds_can_come_back(tiny: Any) -> None:
    model, tokenizer = tiny
    reserve.reserve(model, tokenizer, 20, 21, 10.0)
    hidden = torch.randn(3, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
    reserve.point(model, 5.0 * hidden[0].detach())
    p = reserve.probe(model)(hidden)
    assert p[0] == 1
    p[0].backward()
    torch.testing.assert_close(hidden.grad[0], 5.0 * hidden[0].detach(), atol=1e-4, rtol=1e-4)


def test_rows_that_are_set_give_the_value_that_they_should(biased: Any) -> None:
    model, tokenizer, pair = biased
    reserve.reserve(model, tokenizer, *pair, 10.0)
    direction, hidden = torch.linspace(-0.01, 0.02, 32), torch.eye(32)
    reserve.point(model, direction)
    torch.testing.assert_close(reserve.probe(model)(hidden), direction, atol=1e-5, rtol=1e-4)
    assert banned(model) == list(pair)


def test_log_probabilities_leave_the_two_rows_alone(biased: Any) -> None:
    model, tokenizer, pair = biased
    reserve.reserve(model, tokenizer, *pair, 10.0)
    ids = torch.tensor([[5, 9, 7, 30]])
    logp, entropy = logprobs(model, ids, torch.ones_like(ids, dtype=torch.bool), entropy=True)
    assert entropy is not None
    (logp.sum() + entropy.sum()).backward()
    rows = model.get_output_embeddings().weight.grad.abs().sum(1)
    assert rows[list(pair)].tolist() == [0, 0] and (rows > 0).sum() == len(tokenizer) - 2


def banned(model: nn.Module) -> list[int]:
    """Return the ids whose logits are too low to be drawn."""
    with torch.no_grad():
        logits = base_model(model)(torch.tensor([[5, 9, 7]])).logits[0]
    return (logits < -1e8).all(0).nonzero()[:, 0].tolist()


def test_a_saved_model_keeps_it(tiny: Any, tmp_path: Path) -> None:
    model, tokenizer = tiny
    reserve.reserve(model, tokenizer, 20, 21, 7.0)
    save_model(model, tokenizer, tmp_path / "m")
    again, tok = load_model(str(tmp_path / "m"))
    assert reserve.reserved(again) == {"plus": 20, "minus": 21, "scale": 7.0} and banned(again) == [20, 21]
    assert reserve.choose(again, tok) == (20, 21)
    ids = torch.tensor([[5, 9, 7]])
    p, q = (reserve.probe(m)(features(m, ids, torch.arange(3))[0]) for m in (again, model))
    torch.testing.assert_close(p, q)
    save_model(load_model("tiny", **SMALL)[0], tokenizer, tmp_path / "plain")
    assert banned(load_model(str(tmp_path / "plain"))[0]) == []


def test_adapters_keep_it_alone_and_merged(tiny: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    save_model(*tiny, tmp_path / "base")
    model, tokenizer = load_model(str(tmp_path / "base"), lora={"r": 2})
    reserve.reserve(model, tokenizer, 20, 21, 7.0)
    assert banned(model) == [20, 21]
    for name, merged in (("adapters", False), ("whole", True)):
        again, _ = load_model(str(save_model(model, tokenizer, tmp_path / name, merged=merged)))
        assert reserve.reserved(again) == {"plus": 20, "minus": 21, "scale": 7.0} and banned(again) == [20, 21]
    assert banned(load_model(str(tmp_path / "base"))[0]) == []


def test_once_is_enough_and_another_pair_replaces_the_first(tiny: Any) -> None:
    model, tokenizer = tiny
    for pair in ((20, 21), (20, 21), (30, 31)):
        reserve.reserve(model, tokenizer, *pair, 10.0)
        reserve.restore(model)
        assert banned(model) == list(pair) and len(model.get_output_embeddings()._forward_hooks) == 1
    assert banned(copy.deepcopy(model)) == [30, 31]


def test_it_travels_with_the_model(tiny: Any) -> None:
    model, tokenizer = tiny
    reserve.reserve(model, tokenizer, 20, 21, 7.0)
    assert banned(pickle.loads(pickle.dumps(model))) == [20, 21]


@pytest.mark.slow
def test_another_process_gets_it_with_the_model(tiny: Any) -> None:
    model, tokenizer = tiny
    reserve.reserve(model, tokenizer, 20, 21, 7.0)
    ids = torch.tensor([[5, 20], [5, 21], [5, 22]])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        logp, _ = pool.submit(logprobs, model.requires_grad_(False), ids, torch.ones_like(ids, dtype=torch.bool)).result(120)
        assert pool.submit(reserve.reserved, model).result(120) == {"plus": 20, "minus": 21, "scale": 7.0}
    assert (logp[:, 1].exp() > 0).tolist() == [False, False, True]


# -- which tokens -------------------------------------------------------------------------------------------------------------------


def words(names: list[str], *, special: list[str], decoder: Any = None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({n: i for i, n in enumerate(["<pad>", "<end>", *names])}, unk_token="<pad>"))
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(special)
    out = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<pad>")
    out.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} <end>{% endfor %}<unused9>"
    return out


@pytest.mark.parametrize(
    ("names", "special", "decoder", "rows", "expected"),
    [
        (["a", "b"], ["<unused1>", "<unused2>"], None, 12, (11, 10)),  # rows that only pad the vocabulary come first
        (["a", "b"], ["<unused9>", "<x>", "<|reserved_1|>", "<|reserved_2|>"], None, 8, (6, 7)),  # the template writes <unused9>
        (["a", "<0x0A>", "<0xFE>", "<0xFF>"], [], None, 6, (4, 5)),
        (["þ", "ÿ", "a"], [], decoders.ByteLevel(), 5, (2, 3)),
        (["þ", "ÿ", "a"], [], None, 5, None),  # letters of Icelandic and French
        (["a", "þ", "ÿ"], ["<unused1>"], decoders.ByteLevel(), 6, (3, 4)),  # one is not enough
    ],
)
def test_tokens_that_no_text_needs(names: list[str], special: list[str], decoder: Any, rows: int, expected: tuple[int, int] | None) -> None:
    model, tokenizer = Qwen3ForCausalLM(Qwen3Config(vocab_size=rows, **SIZE)), words(names, special=special, decoder=decoder)
    if expected is None:
        with pytest.raises(ConfigError, match=r"no two tokens that are never used.*critic\.tokens"):
            reserve.choose(model, tokenizer)
    else:
        assert reserve.choose(model, tokenizer) == expected


def test_the_tiny_tokenizer_gives_two_bytes(tiny: Any) -> None:
    model, tokenizer = tiny
    pair = reserve.choose(model, tokenizer)
    assert tokenizer.convert_ids_to_tokens(list(pair)) == ["þ", "ÿ"]
    assert not set(pair) & set(tokenizer("ÿ þ 日本 \U0001f600 café", add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("name", ["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"])
def test_what_the_chat_needs_stays(tiny: Any, name: str) -> None:
    model, tokenizer = tiny
    with pytest.raises(ConfigError, match="cannot be reserved"):
        reserve.reserve(model, tokenizer, tokenizer.convert_tokens_to_ids(name), 20, 10.0)
    assert banned(model) == []


@pytest.mark.parametrize(("plus", "minus", "scale", "message"), [(20, 20, 1.0, "must differ"), (20, 999, 1.0, "ids 0 to"), (20, 21, 0.0, "positive")])
def test_what_makes_no_sense_is_refused(tiny: Any, plus: int, minus: int, scale: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reserve.reserve(*tiny, plus, minus, scale)


def test_models_that_change_their_logits_are_refused() -> None:
    """A soft cap would lift the reserved logits to −cap."""
    model = Gemma2ForCausalLM(Gemma2Config(vocab_size=12, final_logit_softcapping=30.0, **SIZE))
    with pytest.raises(ConfigError, match="after the output head"):
        reserve.reserve(model, words(["a", "b"], special=[]), 8, 9, 10.0)


def test_a_frozen_head_needs_two_rows_that_differ(tiny: Any) -> None:
    """A model with adapters cannot pull equal rows apart: no value could ever be read."""
    pytest.importorskip("peft")
    model, tokenizer = tiny
    with torch.no_grad():
        model.get_output_embeddings().weight[21] = model.get_output_embeddings().weight[20]
    reserve.reserve(model, tokenizer, 20, 21, 10.0)  # all weights are trained: they will part
    wrapped = add_lora(model, r=2)
    with pytest.raises(ConfigError, match="nearly the same row"):
        reserve.reserve(wrapped, tokenizer, 20, 21, 10.0)


def test_a_value_without_reserved_tokens_is_an_error(make_model: Callable[[], nn.Module]) -> None:
    with pytest.raises(ConfigError, match="critic: autoregressive"):
        reserve.probe(make_model())
