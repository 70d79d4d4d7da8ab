"""Streams: computed only when named, equal to the model's numbers, frozen where they must be."""

from __future__ import annotations

import pytest
import torch

from agentgym.config import Config
from agentgym.errors import ConfigError
from agentgym.trainers.forward import logprobs
from agentgym.trainers.streams import Reference, fill


def test_own_streams_share_a_pass_and_are_right(make_model, random_batch):
    model, batch = make_model(), random_batch()
    fill(batch, {"logp_train", "entropy"}, model, None, Config())
    assert set(batch.streams) == {"logp_train", "entropy"} and set(batch.timings) == {"entropy+logp_train"}
    ids = batch.token[batch.segment == 1]
    logp, entropy = logprobs(model, ids[None], torch.ones(1, len(ids), dtype=torch.bool), entropy=True)
    assert torch.allclose(batch.streams["logp_train"][batch.segment == 1], logp[0], atol=1e-5)
    assert torch.allclose(batch.streams["entropy"][batch.segment == 1], entropy[0], atol=1e-5)
    assert not batch.streams["entropy"].requires_grad


def test_reference_stays_while_the_model_moves(make_model, random_batch):
    model, batch = make_model(), random_batch()
    reference = Reference(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    fill(batch, {"ref_logp", "logp_train"}, model, reference, Config())
    fresh = random_batch()
    fill(fresh, {"logp_train"}, make_model(), None, Config())
    assert torch.equal(batch.streams["ref_logp"], fresh.streams["logp_train"])
    assert not torch.allclose(batch.streams["ref_logp"], batch.streams["logp_train"])


def test_reference_of_a_model_with_adapters_is_the_model_without_them(make_model, random_batch):
    peft = pytest.importorskip("peft")
    plain, batch = make_model(), random_batch()
    model = peft.get_peft_model(make_model(), peft.LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"))
    reference = Reference(model)
    assert reference.model is model
    fill(batch, {"ref_logp", "logp_train"}, model, reference, Config())
    bare = random_batch()
    fill(bare, {"logp_train"}, plain, None, Config())
    assert torch.allclose(batch.streams["ref_logp"], bare.streams["logp_train"], atol=1e-5)
    assert not torch.allclose(batch.streams["ref_logp"], batch.streams["logp_train"], atol=1e-3)


def test_providers_and_refusals(make_model, random_batch):
    batch, model = random_batch(), make_model()
    fill(batch, {"teacher_logp"}, model, None, Config(), {"teacher_logp": lambda b: torch.zeros(b.n_tokens, 5)})
    assert batch.streams["teacher_logp"].shape == (batch.n_tokens, 5) and "teacher_logp" in batch.timings
    with pytest.raises(ConfigError, match="Did you mean 'ref_logp'"):
        fill(batch, {"ref_logpp"}, model, None, Config())
    with pytest.raises(ConfigError, match="keeps no reference"):
        fill(batch, {"ref_logp"}, model, None, Config())
    with pytest.raises(ValueError, match="expected one per token"):
        fill(batch, {"teacher_logp"}, model, None, Config(), {"teacher_logp": lambda b: torch.zeros(3)})
