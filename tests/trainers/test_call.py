"""The signature is the schema."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.trainers.call import FOR_CREDIT, PACKED, call, check, columns, needs


def reverse_kl(logp: Tensor, teacher_logp: Tensor, *, beta: float = 1.0) -> Tensor:
    return beta * (logp - teacher_logp)


def with_memory(outcome: Tensor, entropy: Tensor | None = None, *, state: dict) -> Tensor:
    state["calls"] = state.get("calls", 0) + 1
    return outcome


def test_call_hands_over_what_the_parameters_name(golden):
    golden.streams["teacher_logp"] = torch.ones(golden.n_tokens)
    out = call(functools.partial(reverse_kl, beta=2.0), golden, logp=torch.zeros(golden.n_tokens))
    assert out.tolist() == [-2.0] * golden.n_tokens


def test_state_and_optional_columns(golden):
    state: dict = {}
    assert torch.equal(call(with_memory, golden, state=state), golden.outcome)
    assert state == {"calls": 1} and needs([with_memory]) == {"outcome"}


def test_a_missing_column_is_named_before_any_work():
    with pytest.raises(ConfigError, match=r"reverse_kl needs 'teacher_logp', which nothing provides.*A teacher does: teachers.peer.*Provided: logp"):
        check([functools.partial(reverse_kl, beta=2.0)], {"logp", "teacher_logits"})


def test_packed_columns_are_what_a_batch_has(golden):
    assert set(columns(golden)) == {*PACKED, *FOR_CREDIT}


def test_without_logprobs_the_reason_is_given(golden):
    golden.logp_old = None
    with pytest.raises(ConfigError, match="some completions came without log-probabilities"):
        call(lambda logp_old: logp_old, golden)


def test_a_missing_stream_names_who_would_provide_it():
    with pytest.raises(ConfigError, match=r"gae needs 'value', which nothing provides. A critic does: critic=autoregressive or critic=head\."):
        check([bind("credit", "gae")], PACKED)
    with pytest.raises(ConfigError, match=r"stepopsd needs 'teacher_logp', which nothing provides. A teacher does: teachers.peer=\{\}\."):
        check([bind("credit", "stepopsd")], {*PACKED, "logp_train"})
