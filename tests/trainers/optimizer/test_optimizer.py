"""adamw and muon: who gets what, and an exact resume."""

from __future__ import annotations

import copy

import pytest
import torch

from agentgym.registry import bind


def train(model, optimizer, steps):
    ids = torch.arange(12).reshape(2, 6)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_learns_and_resumes_to_the_same_numbers(name, make_model):
    model = make_model()
    optimizer = bind("optimizer", name, {"lr": 1e-2})(model.named_parameters())
    first = train(model, optimizer, 1)
    train(model, optimizer, 8)
    twin = copy.deepcopy(model)
    resumed = bind("optimizer", name, {"lr": 1e-2})(twin.named_parameters())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    last = train(model, optimizer, 3)
    assert last < first and train(twin, resumed, 3) == last


def test_muon_takes_hidden_matrices_and_nothing_is_left_out(make_model):
    model = make_model()
    pair = bind("optimizer", "muon", {"lr": 1e-3, "adam_lr": 5e-4})(model.named_parameters())
    names = {id(p): n for n, p in model.named_parameters()}
    hidden = {names[id(p)] for p in pair.members["muon"].param_groups[0]["params"]}
    rest = {names[id(p)] for g in pair.members["adamw"].param_groups for p in g["params"]}
    assert all(n.endswith("proj.weight") for n in hidden) and "model.embed_tokens.weight" in rest
    assert hidden | rest == set(names.values()) and not hidden & rest
    assert [g["lr"] for g in pair.param_groups] == [1e-3] + [5e-4] * 2
    pair.param_groups[0]["lr"] = 0.5  # what a schedule does
    assert pair.members["muon"].param_groups[0]["lr"] == 0.5


def test_adamw_decays_matrices_only(make_model):
    optimizer = bind("optimizer", "adamw", {"weight_decay": 0.1})(make_model().named_parameters())
    assert [(g["weight_decay"], {p.ndim for p in g["params"]}) for g in optimizer.param_groups] == [(0.1, {2}), (0.0, {1})]


def test_muon_without_a_matrix_says_so():
    with pytest.raises(ValueError, match="use adamw"):
        bind("optimizer", "muon")([("bias", torch.nn.Parameter(torch.zeros(3)))])
