"""pivots: the rows of a file, every one once per epoch, only of training tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import CheckpointError, ConfigError, DataError
from agentgym.registry import bind
from agentgym.types import Task

TRAIN = [Task(f"t{i}", "toy", "train", seed=i) for i in range(4)]


def row(task: str, index: int = 0, action: str = "go") -> dict[str, Any]:
    history = [{"observation": f"o{i}", "admissible": None, "completion": f"a{i}", "action": f"a{i}"} for i in range(index)]
    return {
        "task": {"id": task, "env": "toy", "split": "train", "seed": 7, "data": {}},
        "index": index,
        "start": {"history": history, "now": {"observation": f"o{index}", "admissible": None}, "info": {}},
        "expected": {"action": action, "completion": action, "observation": "next"},
        "mean": 0.25,
    }


ROWS = [row("t0"), row("t0", 1), row("t0", 2), row("t1", 1), row("t3")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "pivots.jsonl", ROWS)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return path


def make(file: Path, tasks: Any = TRAIN, seed: int = 3, **options: Any) -> Any:
    return bind("sampler", "pivots", {"file": str(file), **options})(tasks, seed)


def names(tasks: list[Task]) -> list[tuple[str, int]]:
    return [(t.id, len(t.data["start"]["history"])) for t in tasks]


def test_a_pivot_is_its_task_with_the_decision_in_its_data(file: Path) -> None:
    first = make(file, shuffle=False).take(5)[3]
    assert (first.id, first.env, first.split, first.seed) == ("t1", "toy", "train", 7)  # the seed that it was recorded with
    assert first.data["start"] == ROWS[3]["start"] and first.data["expected"] == ROWS[3]["expected"]


def test_every_pivot_once_per_epoch_in_a_new_order(file: Path) -> None:
    s = make(file)
    first, second = names(s.take(5)), names(s.take(5))
    assert sorted(first) == sorted(second) == [("t0", 0), ("t0", 1), ("t0", 2), ("t1", 1), ("t3", 0)]
    assert names(make(file).take(10)) == first + second and names(make(file, seed=4).take(10)) != first + second
    assert make(file, [t.id for t in TRAIN]).take(5) == make(file).take(5)  # ids do as well as tasks


@pytest.mark.parametrize("before", [0, 3, 5, 12])
def test_resume_is_exact(file: Path, before: int) -> None:
    s = make(file)
    s.take(before)
    state, other = json.loads(json.dumps(s.state_dict())), make(file)
    other.load_state_dict(state)
    assert names(other.take(9)) == names(s.take(9))


def test_another_file_is_refused(file: Path, tmp_path: Path) -> None:
    state = make(file).state_dict()
    others = [ROWS[:-1], [*ROWS[:-1], row("t3", 0, "stay")], [*ROWS[:-1], row("t3", 1)], [*ROWS[:2], row("t0", 3), *ROWS[3:]]]
    for i, rows in enumerate(others):
        with pytest.raises(CheckpointError, match="other tasks"):
            make(write(tmp_path / f"{i}.jsonl", rows)).load_state_dict(state)


def test_held_out_means_held_out(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 task\(s\) of its pivots are not in the training split, e\.g\. 't3'.*never trained on"):
        make(file, TRAIN[:3])


def test_what_is_no_pivot_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs its file: sampler\.file=FILE.*agentgym pivots"):
        bind("sampler", "pivots", {})(TRAIN, 0)
    with pytest.raises(ConfigError, match="holds no pivot"):
        make(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(DataError, match="there is no file"):
        make(tmp_path / "none.jsonl")
    for broken in (
        {"task": {}},
        {**ROWS[0], "start": {}},
        {**ROWS[0], "expected": {}},
        {**ROWS[0], "task": {"id": "t0", "colour": 1}},
        {"settings": {}},
    ):
        with pytest.raises(DataError, match=r"line 2 is no pivot"):
            make(write(tmp_path / "broken.jsonl", [ROWS[0], broken]))
