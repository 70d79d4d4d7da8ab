"""uniform: every task once per epoch, and an exact resume."""

from __future__ import annotations

import json

import pytest

from agentgym.errors import CheckpointError, ConfigError
from agentgym.registry import bind

TASKS = [f"task-{i}" for i in range(7)]


def make(tasks=TASKS, seed=3, **options):
    return bind("sampler", "uniform", options)(tasks, seed)


def test_every_task_once_per_epoch_in_a_new_order():
    s = make()
    first, second = s.take(7), s.take(7)
    assert sorted(first) == sorted(second) == TASKS and first != second
    assert make().take(14) == first + second and make(seed=4).take(7) != first
    assert make(shuffle=False).take(9) == TASKS + TASKS[:2]


@pytest.mark.parametrize("before", [0, 3, 7, 11, 23])
def test_resume_is_exact(before):
    s = make()
    s.take(before)
    state, other = json.loads(json.dumps(s.state_dict())), make()
    other.load_state_dict(state)
    assert other.take(20) == s.take(20)


def test_other_tasks_are_refused():
    with pytest.raises(CheckpointError, match="other tasks"):
        make(TASKS[:-1]).load_state_dict(make().state_dict())
    with pytest.raises(ConfigError, match="no tasks"):
        make([])
