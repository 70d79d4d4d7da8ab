"""What is written comes back exactly; torn ends are survived."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym import store
from agentgym.errors import DataError
from agentgym.types import Completion, Status, Step, Task, Trajectory

text = st.text(max_size=12)  # all of Unicode, but for lone surrogates, which have a test of their own
number = st.floats(allow_nan=False, allow_infinity=False)
ints = st.lists(st.integers(0, 200_000), max_size=4)
info = st.dictionaries(text, st.one_of(text, number, st.integers(), st.booleans(), st.none(), st.lists(text, max_size=2)), max_size=2)
completions = st.builds(
    Completion,
    text,
    st.none() | ints,
    st.none() | st.lists(number, max_size=4),
    st.sampled_from(["stop", "length"]),
    st.integers(0, 9) | ints,
)
steps = st.builds(
    Step, prompt=ints, new_segment=st.booleans(), completion=completions, action=text, valid=st.booleans(), observation=text,
    reward=number, state=text, penalty=number, info=info,
)  # fmt: skip
trajectories = st.builds(
    Trajectory, task=st.builds(Task, text, text, text, st.integers(), info), group=text, steps=st.lists(steps, max_size=3),
    rewards=st.dictionaries(text, number, max_size=2), outcome=number, success=st.booleans(), status=st.sampled_from(Status),
    error=st.none() | text, final_observation=text, info=info,
)  # fmt: skip


def simple(i: int, words: str = "go north") -> Trajectory:
    step = Step(
        [1, 2],
        True,
        Completion(f"<a>{words}</a>", [3], [-0.1]),
        words,
        True,
        "You see a door.\nIt is shut.",
        1.0,
        "door",
    )
    return Trajectory(
        Task(f"t{i}", "toy", "train"),
        "g",
        [step],
        {"env": 1.0},
        1.0,
        True,
        Status.TERMINATED,
        final_observation="Open.",
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(trajectories, max_size=3), st.sampled_from(["a.jsonl", "a.jsonl.gz"]))
def test_exact_round_trip(tmp_path_factory: pytest.TempPathFactory, episodes: list[Trajectory], name: str) -> None:
    path = tmp_path_factory.mktemp("store") / name
    store.write(path, [])
    for e in episodes:
        store.write(path, [e])
    back = list(store.read(path)) if episodes else []
    assert back == episodes
    assert repr(back) == repr(episodes)  # −0.0 and 0.0, True and 1 are equal, and not the same


def test_infinities_surrogates_and_numpy_survive(tmp_path: Path) -> None:
    t = simple(0, "\ud800 \u2028 ☃")
    t.steps[0].completion.logprobs = [float("-inf"), 1 / 3]
    t.info = {"n": np.int64(3), "x": np.float32(0.5), "v": np.arange(2)}
    store.write(tmp_path / "a.jsonl", [t, simple(1)])
    back, other = store.read(tmp_path / "a.jsonl")
    assert back.steps == t.steps and back.info == {"n": 3, "x": 0.5, "v": [0, 1]} and other == simple(1)
    assert b"You see a door." in (tmp_path / "a.jsonl").read_bytes()


def test_advantages_are_for_people(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    store.write(path, [simple(0)], advantages=np.array([[0.25]]))
    (row,) = store.read_lines(path)
    assert row["steps"][0]["advantage"] == 0.25 and list(store.read(path)) == [simple(0)]
    assert "advantage +0.250" in store.episode_text(simple(0), advantages=[0.25])
    with pytest.raises(DataError, match=r"lengths \[2\].*\[1\] steps"):
        store.write(path, [simple(0)], advantages=[[1.0, 2.0]])


def test_what_json_cannot_hold_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    bad = simple(1)
    bad.info["env"] = object()
    with pytest.raises(DataError, match=r"task 't1'.*object"):
        store.write(tmp_path / "a.jsonl", [simple(0), bad])
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_torn_end_is_skipped_then_cut_off(tmp_path: Path, name: str, cut: int) -> None:
    path = tmp_path / name
    for i in range(3):
        store.write(path, [simple(i)])
    path.write_bytes(path.read_bytes()[:-cut])
    # Of a compressed file, a line may be whole where only the check sum of its block is torn.
    caught = pytest.warns(UserWarning, match="torn") if name == "a.jsonl" or cut > 20 else _nothing()
    with caught:
        back = list(store.read(path))
    assert back[:2] == [simple(0), simple(1)] and len(back) <= 3
    with pytest.warns(UserWarning, match="cut"):
        store.write(path, [simple(9)])
    assert list(store.read(path)) == [simple(0), simple(1), simple(9)]


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_files_of_other_tools_are_read_and_grown(tmp_path: Path) -> None:
    store.write(tmp_path / "a.jsonl", [simple(0), simple(1)])
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as f:
        f.write((tmp_path / "a.jsonl").read_bytes())
    store.write(tmp_path / "b.jsonl.gz", [simple(2)])
    assert list(store.read(tmp_path / "b.jsonl.gz")) == [simple(0), simple(1), simple(2)]
    assert gzip.decompress((tmp_path / "b.jsonl.gz").read_bytes()).count(b"\n") == 3


def test_other_damage_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for content, what in (
        (b"{}\n", "line 1 is not a trajectory"),
        (b"[1]\n", "holds a list"),
        (b"{\n", "line 1 is not JSON"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=what):
            list(store.read(path))
    (tmp_path / "a.jsonl.gz").write_bytes(b"this is not gzip")
    with pytest.raises(DataError, match="not a gzip file"):
        list(store.read(tmp_path / "a.jsonl.gz"))
    with pytest.raises(DataError, match="no file"):
        list(store.read(tmp_path / "none.jsonl"))


def test_a_long_file_is_read_in_blocks(tmp_path: Path) -> None:
    episodes = [simple(i, "x" * 5000) for i in range(400)]
    for name in ("a.jsonl", "a.jsonl.gz"):
        store.write(tmp_path / name, episodes)
        assert list(store.read(tmp_path / name)) == episodes


def test_the_transcript_shows_what_happened() -> None:
    t = simple(0)
    t.steps.append(Step([], False, Completion("look", finish="length"), "look", False, "A wall.", 0.0, "wall", penalty=-0.1))
    shown = store.episode_text(t)
    for part in (
        "task t0",
        "success",
        "It is shut.",
        "<a>go north</a>",
        "reward 1",
        "penalty -0.1, invalid, cut at the token limit",
        "Open.",
    ):
        assert part in shown
    assert "\\ud800" in store.episode_text(simple(0, "\ud800"))
    broken = Trajectory(Task("t", "toy", "train"), "g", status=Status.ERROR, error="no server")
    assert "BROKEN" in store.episode_text(broken) and "no verdict" in store.episode_text(broken)


def test_write_atomic_leaves_nothing_else(tmp_path: Path) -> None:
    store.write_atomic(tmp_path / "deep" / "a.json", "1")
    store.write_atomic(tmp_path / "deep" / "a.json", "ü")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.json"] and (tmp_path / "deep" / "a.json").read_text("utf-8") == "ü"
