"""pack and select: every column, by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from agentgym.errors import DataError
from agentgym.trainers.batch import STEP, TOKEN, TRAJ, Batch, pack
from agentgym.trainers.ops import broadcast
from agentgym.types import Completion, Status, Step, Task, Trajectory


def step(prompt, tokens, *, new=False, state="s", reward=0.0, penalty=0.0, version=1, logprobs="auto"):
    logp = [-float(t) for t in tokens] if logprobs == "auto" else logprobs
    return Step(prompt, new, Completion("", tokens, logp, version=version), "", penalty == 0, "", reward, state, penalty)


def by_hand() -> list[Trajectory]:
    one = Trajectory(Task("t", "e", "s"), "g", [
        step([1, 2], [3], state="a"),
        step([4], [5, 6], state="b", reward=2.0, version=[7, 8]),
        step([1], [9], state="a", new=True, reward=1.0, penalty=-0.1),
    ], outcome=3.0, success=True, status=Status.TERMINATED)  # fmt: skip
    broken = Trajectory(Task("t", "e", "s"), "g", [step([1], [1])], status=Status.ERROR, error="socket closed")
    two = Trajectory(Task("u", "e", "s"), "h", [step([1], [2], state="a")], status=Status.TRUNCATED)
    return [one, broken, two]


def test_pack_by_hand():
    b = pack(by_hand(), discount=0.5)
    assert b.failed == 1
    assert b.token.tolist() == [1, 2, 3, 4, 5, 6, 1, 9, 1, 2]
    assert b.position.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 0, 1]
    assert b.segment.tolist() == [0] * 6 + [1] * 2 + [2] * 2
    assert b.sampled.tolist() == [False, False, True, False, True, True, False, True, False, True]
    assert b.logp_old.tolist() == [0, 0, -3, 0, -5, -6, 0, -9, 0, -2]
    assert b.version.tolist() == [-1, -1, 1, -1, 7, 8, -1, 1, -1, 1]
    assert b.step.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert b.step_traj.tolist() == [0, 0, 0, 1] and b.step_index.tolist() == [0, 1, 2, 0]
    assert b.step_reward.tolist() == [0, 2, 1, 0] and b.step_return.tolist() == [1.25, 2.5, 1, 0]
    assert b.step_penalty.tolist() == pytest.approx([0, 0, -0.1, 0]) and b.step_valid.tolist() == [True, True, False, True]
    assert b.step_state.tolist() == [0, 1, 0, 2]  # the same key in another group is another state
    assert b.traj_group.tolist() == [0, 1] and b.outcome.tolist() == [3, 0] and b.length.tolist() == [3, 1]
    assert b.success.tolist() == [True, False] and b.truncated.tolist() == [False, True]
    assert (b.n_tokens, b.n_steps, b.n_trajectories, b.n_segments) == (10, 4, 2, 3)


def test_every_column_is_listed():
    assert set(TOKEN + STEP + TRAJ) == {f.name for f in dataclasses.fields(Batch)} - {"state_text", "streams", "timings", "failed"}


def test_select_is_what_packing_those_alone_gives(random_batch):
    b = random_batch(seed=4)
    b.streams["top"] = torch.randn(b.n_tokens, 2)
    part = b.select(torch.tensor([7, 2]))
    assert part.n_trajectories == 2 and part.length.tolist() == b.length[[2, 7]].tolist()
    assert part.segment.unique().tolist() == list(range(part.n_segments))
    inside = torch.isin(b.step_traj[b.step], torch.tensor([2, 7]))
    assert torch.equal(part.token, b.token[inside]) and torch.equal(part.streams["top"], b.streams["top"][inside])
    assert torch.equal(part.step_return[part.step], b.step_return[b.step][inside])
    assert torch.equal(part.outcome[part.step_traj], b.outcome[b.step_traj][torch.isin(b.step_traj, torch.tensor([2, 7]))])


def test_demonstrations_have_no_logp_old():
    demo = Trajectory(Task("t", "e", "s"), "g", [step([1], [2], logprobs=None)], status=Status.TERMINATED)
    b = pack([demo, by_hand()[0]], discount=1.0)
    assert b.logp_old is None and b.select(torch.tensor([0])).logp_old is None


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (step([1], [2, 3], logprobs=[-1.0]), "1 log-probabilities for 2 tokens"),
        (step([1], [2], logprobs=[float("nan")]), "not finite"),
        (step([1], [2, 3], version=[1]), "1 versions for 2 tokens"),
        (step([], [2]), "empty prompt"),
        (dataclasses.replace(step([1], [2]), completion=Completion("hello")), "no token ids"),
    ],
)
def test_bad_steps_say_where(bad, says):
    with pytest.raises(DataError, match=says) as e:
        pack([Trajectory(Task("kitchen-7", "e", "s"), "g", [step([1], [1]), dataclasses.replace(bad, new_segment=True)])], discount=1.0)
    assert "kitchen-7" in str(e.value) and "step 1" in str(e.value)


def test_nothing_left_gives_the_reason():
    with pytest.raises(DataError, match="socket closed"):
        pack(by_hand()[1:2], discount=1.0)


def test_advantage_is_broadcast_to_written_tokens_and_takes_the_penalty():
    b = pack(by_hand(), discount=0.5)
    b.set_advantage(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert b.advantage.tolist() == pytest.approx([0, 0, 1, 0, 2, 2, 0, 2.9, 0, 4])
    assert b.advantage_of_steps() == [pytest.approx([1, 2, 2.9]), [4]]
    with pytest.raises(ValueError, match=r"\[S\]=\(4,\)"):
        broadcast(torch.zeros(3), b)
