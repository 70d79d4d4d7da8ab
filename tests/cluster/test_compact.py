"""Trajectories come back exactly as they went, in a fraction of the bytes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.trainers.cluster._compact import compact, expand
from agentgym.types import Completion, Status, Step, Task, Trajectory

TASK = Task("t", "toy", "train", 7, {"hidden": [1, 2]})
text = st.one_of(st.sampled_from(["You see a key.", "go left", ""]), st.text(st.characters(), max_size=12))
token = st.integers(0, 200_000)
real = st.one_of(st.floats(width=32, allow_nan=False), st.floats(allow_nan=False))


@st.composite
def steps(draw: Any) -> Step:
    n = draw(st.integers(0, 4))
    tokens = draw(st.none() | st.just([draw(token) for _ in range(n)]))
    logprobs = draw(st.none() | st.just([draw(real) for _ in range(n)]))
    version = draw(st.integers(0, 1 << 40) | st.lists(st.integers(0, 300), min_size=1, max_size=4))
    done = Completion(draw(text), tokens, logprobs, draw(st.sampled_from(["stop", "length"])), version)
    info = draw(st.sampled_from([{}, {"a": [1, "x"]}]))
    return Step(draw(st.lists(token, max_size=4)), draw(st.booleans()), done, draw(text), draw(st.booleans()), draw(text), draw(real), draw(text),
                draw(real), info)  # fmt: skip


@st.composite
def trajectories(draw: Any) -> Trajectory:
    task = draw(st.sampled_from([TASK, Task("another", "toy", "train")]))
    status, error = draw(st.sampled_from(list(Status))), draw(st.none() | text)
    played, info = draw(st.lists(steps(), max_size=3)), draw(st.sampled_from([{}, {"task_type": "x"}]))
    return Trajectory(task, draw(text), played, {"env": draw(real)}, draw(real), draw(st.booleans()), status, error, draw(text), info)


@settings(max_examples=60, deadline=None)
@given(st.lists(trajectories(), max_size=3))
def test_what_comes_out_is_what_went_in(played: list[Trajectory]) -> None:
    known = [TASK] * len(played)
    found = expand(compact(played, known), known)
    assert found == played
    for t, was in zip(found, played, strict=True):
        assert isinstance(t.status, Status) and [type(s.completion.version) for s in t.steps] == [type(s.completion.version) for s in was.steps]
        assert t.task is TASK or was.task is not TASK


def test_a_lone_surrogate_arrives() -> None:
    t = Trajectory(TASK, "g", [Step([1], True, Completion("a\ud83d", [2]), "b", True, "\udc00", 0.0, "s")])
    assert expand(compact([t], [TASK]), [TASK]) == [t]


def test_four_bytes_for_what_needs_no_more_and_eight_for_what_does() -> None:
    def size(values: list[float]) -> int:
        t = Trajectory(TASK, "g", [Step([], True, Completion("", [1] * 1000, values), "", True, "", 0.0, "")])
        assert expand(compact([t], [TASK]), [TASK]) == [t]
        return len(compact([t], [TASK]))

    exact = np.linspace(-9, 0, 1000).astype("f4").tolist()
    assert 0 <= size([x + 1e-12 for x in exact]) - size(exact) - 4000 < 10


def test_it_is_small() -> None:
    """An episode like ALFWorld's: 20 turns of 60 new tokens of prompt and 15 written, observations that come again."""
    rng = np.random.default_rng(0)
    played = []
    for _ in range(8):
        steps = []
        for i in range(20):
            seen = f"You arrive at shelf {i % 5}. On the shelf you see a mug, a bowl, a soapbar and a candle. What do you do next? " * 2
            done = Completion(f"go to shelf {i % 5}", rng.integers(0, 150_000, 15).tolist(), (-rng.random(15)).astype("f4").tolist())
            steps.append(Step(rng.integers(0, 150_000, 60).tolist(), False, done, done.text, True, seen, 0.0, seen))
        played.append(Trajectory(TASK, "g", steps))
    small, plain = len(compact(played, [TASK] * 8)), len(pickle.dumps(played, protocol=5))
    numbers = 8 * 20 * (75 * 4 + 15 * 4)  # tokens and log-probabilities in four bytes each
    assert small < 1.25 * numbers and small < plain / 1.5
    assert b"What do you do next" in compact(played, [TASK] * 8) and compact(played, [TASK] * 8).count(b"arrive at shelf 3") == 2
