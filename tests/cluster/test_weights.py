"""A model on its way: the shape and the frozen weights once, the trained ones after every update."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from agentgym.trainers.cluster._shared import Reader, Stored
from agentgym.trainers.cluster._weights import assemble, dismantle, pack, unpack
from agentgym.trainers.model import load_model, trainable

SMALL = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 64, "vocab": 300}


def test_weights_arrive_whatever_their_type() -> None:
    params = [torch.randn(3, 5), torch.randn(7, dtype=torch.float64), torch.randn(2, 2).to(torch.bfloat16), torch.tensor(4.0)]
    there = [torch.zeros_like(p) for p in params]
    unpack(pack(params), there)
    assert all(torch.equal(p, q) for p, q in zip(params, there, strict=True))
    assert pack(params).nbytes == 64 + 64 + 64 + 4  # each begins at a multiple of 64
    unpack(pack([]), [])


def test_a_model_is_the_same_once_its_weights_are_there() -> None:
    model, tokenizer = load_model("tiny", seed=1, **SMALL)
    parts = dismantle((model, tokenizer))
    assert sum(a.nbytes for a in parts[1]) < 1000  # buffers only: everything is trained
    twin, words = assemble(parts)
    unpack(pack(trainable(model)), trainable(twin))
    ids = torch.tensor([words("a b c")["input_ids"]])
    assert torch.equal(model(ids).logits, twin(ids).logits) and words.get_vocab() == tokenizer.get_vocab()
    assert twin.lm_head.weight is twin.model.embed_tokens.weight  # tied, as it was
    with torch.no_grad():
        trainable(model)[0].add_(1.0)
    assert not torch.equal(model(ids).logits, twin(ids).logits)


def test_what_is_frozen_travels_with_the_shape_and_is_not_sent_again() -> None:
    pytest.importorskip("peft")
    model, _ = load_model("tiny", seed=1, lora={"r": 2}, **SMALL)
    parts = dismantle(model)
    twin = assemble(parts)
    assert pack(trainable(model)).nbytes < 0.3 * sum(a.nbytes for a in parts[1])
    unpack(pack(trainable(model)), trainable(twin))
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q) and p.requires_grad == q.requires_grad, name


def test_buffers_are_copies_and_frozen_parameters_are_not() -> None:
    model = nn.BatchNorm1d(3)
    for p in model.parameters():
        p.requires_grad_(False)
    parts = dismantle(copy.deepcopy(model))
    twin = assemble(parts)
    twin.running_mean.add_(5.0)
    assert assemble(parts).running_mean.sum() == 0
    assert twin.weight.data_ptr() in {a.ctypes.data for a in parts[1]}


def test_a_value_in_shared_memory_is_read_by_name_and_is_gone_when_freed() -> None:
    import pickle

    import numpy as np

    stored = Stored({"a": np.arange(1000), "b": "x", "c": [np.zeros(0), np.float32(2)]})
    reader = pickle.loads(pickle.dumps(stored))
    assert isinstance(reader, Reader) and len(pickle.dumps(stored)) < 300
    found = reader.load()
    assert found["b"] == "x" and np.array_equal(found["a"], np.arange(1000)) and found["c"][1] == 2
    found["a"][0] = 5  # a copy, which may be written
    assert reader.load()["a"][0] == 0
    stored.unlink()
    stored.unlink()
    assert reader.load() is None
