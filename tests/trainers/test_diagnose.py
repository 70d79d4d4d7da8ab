"""Metrics of any method, with numbers worked by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from agentgym.trainers.batch import pack
from agentgym.trainers.diagnose import diagnose, staleness
from agentgym.types import Completion, Status


def test_what_there_was_to_compare(trajectory):
    batch = pack(
        [trajectory("g", "abc", [0, 0, 10]), trajectory("g", "abb", [0, 0, 0]), trajectory("h", "a", [0]), trajectory("h", "zz", [0, 0])],
        discount=0.95,
    )
    batch.set_advantage(torch.tensor([1.0, 1, 1, 0, 2, 4, 0, -1, 1]))
    found = diagnose(batch)
    # alone in their state: c of g; a of h (its own group). z is visited twice.
    assert found["credit/singletons"] == pytest.approx(2 / 9)
    assert found["credit/zero"] == pytest.approx(2 / 9)
    assert found["credit/all_failed"] == 0.5
    # two failed episodes with two steps or more: (0, 2, 4) has standard deviation sqrt(8/3), (-1, 1) has 1
    assert found["credit/failed_spread"] == pytest.approx(((8 / 3) ** 0.5 + 1) / 2)


def test_nobody_failed(trajectory):
    batch = pack([trajectory("g", "ab", [0, 1])], discount=0.95)
    batch.set_advantage(torch.ones(2))
    assert diagnose(batch)["credit/failed_spread"] == 0.0


def test_age_of_tokens(trajectory):
    one = trajectory("g", "a", [1])
    step = dataclasses.replace(one.steps[0], completion=Completion("x", [1, 2, 3, 4], [-1.0] * 4, version=[5, 5, 6, 8]))
    batch = pack([dataclasses.replace(one, steps=[step])], discount=0.95)
    found = staleness(batch, 8)
    assert found == {"staleness/0": 0.25, "staleness/2": 0.25, "staleness/3": 0.5, "staleness/mean": 2.0, "staleness/max": 3.0}
    fresh = dataclasses.replace(step, completion=Completion("x", [1, 2], [-1.0] * 2, version=8))
    assert staleness(pack([dataclasses.replace(one, steps=[fresh])], discount=0.95), 8) == {}


def test_demonstrations_have_no_age(trajectory):
    one = trajectory("g", "a", [1], status=Status.TERMINATED)
    one.steps[0].completion.logprobs = None
    assert staleness(pack([one], discount=0.95), 100) == {}
