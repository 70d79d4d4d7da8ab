"""The value head: targets and loss by hand, gradients that do not depend on memory, what is frozen, learning, resuming."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.call import call
from agentgym.trainers.critic.head import head
from agentgym.trainers.forward import micro_batches
from agentgym.trainers.model import add_lora
from agentgym.trainers.prefix import Tree
from agentgym.trainers.streams import Round
from agentgym.types import Completion, Status, Step, Task, Trajectory

ROUND = Round(budget=64)
Make = Callable[[], nn.Module]


def critic(model: nn.Module, **options: Any) -> head:
    made: head = bind("critic", "head", options)(model, None)
    return made


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def episode(rewards: list[float], *, first: int = 1, n: int = 1, status: Status = Status.TERMINATED) -> Trajectory:
    """Return an episode that reads two tokens, then writes n, in each step."""
    steps = [
        Step([first, 2], False, Completion("x", [3 + i] * n, [-1.0] * n, "stop", 0), "x", True, "o", r, str(i), 0.0) for i, r in enumerate(rewards)
    ]
    return Trajectory(Task("t", "toy", "train"), "g", steps, outcome=sum(rewards), success=sum(rewards) > 0, status=status)


def filled(batch: Batch, value: list[float], next_value: float = 0.0) -> Batch:
    """Return the batch with values of its written tokens, and one value for every context that ends with a token."""
    v = torch.zeros(batch.n_tokens).index_copy(0, batch.sampled.nonzero()[:, 0], torch.tensor(value))
    return replace(batch, streams={"value": v, "next_value": torch.full((batch.n_tokens,), next_value)})


def learned(batch: Batch, model: nn.Module, **options: Any) -> dict[str, float]:
    return critic(model, updates=1, lam=0.95, **options).learn(batch, ROUND, generator())


# METHODS 7.3: V = (.2, .5), r = (0, 1), γ = 1, λ = .95 → A = (0.775, 0.5), y = (0.975, 1.0). A new head says 0 everywhere.
GOLDEN = (0.2, 0.5)


def test_loss_and_metrics_by_hand(make_model: Make) -> None:
    batch = filled(pack([episode([0.0, 1.0])], discount=1.0), list(GOLDEN))
    found = learned(batch, make_model())
    # ½ · mean(0.975², 1²): the clip would allow 0.2 − 0.2 and 0.5 − 0.2, which are no farther from the targets than 0 is.
    assert found["critic/loss"] == pytest.approx((0.975**2 + 1) / 4, rel=1e-5)
    assert found["critic/value_mean"] == pytest.approx(0.35)
    # 1 − Var(0.775, 0.5) / Var(0.975, 1) = 1 − (0.275 / 0.025)²
    assert found["critic/explained_variance"] == pytest.approx(-120, rel=1e-3)
    assert found["critic/grad_norm"] > 0


def test_the_scale_divides_rewards_and_the_clip_is_in_its_units(make_model: Make) -> None:
    """Everything ten times as large, and the same loss."""
    batch = filled(pack([episode([0.0, 10.0])], discount=1.0), [10 * v for v in GOLDEN])
    assert learned(batch, make_model(), scale=10.0)["critic/loss"] == pytest.approx((0.975**2 + 1) / 4, rel=1e-5)


def test_the_clip_keeps_values_near_the_old_ones(make_model: Make) -> None:
    """V_old = 0.5, y = −1 (a penalty): the new value 0 went 0.5 in the right direction, more than 0.2; 0.3 is what counts."""
    batch = filled(pack([episode([-1.0])], discount=1.0), [0.5])
    assert learned(batch, make_model(), clip=0.2)["critic/loss"] == pytest.approx(0.5 * 1.3**2)
    assert learned(batch, make_model(), clip=0.2)["critic/grad_norm"] == 0
    assert learned(batch, make_model(), clip=0.0)["critic/loss"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("status", "truncation", "target"),
    [(Status.TERMINATED, "bootstrap", 1.0), (Status.TRUNCATED, "bootstrap", 1.7), (Status.TRUNCATED, "terminal", 1.0)],
)
def test_an_episode_that_was_cut_off_is_bootstrapped(make_model: Make, status: Status, truncation: str, target: float) -> None:
    """λ = 1: every target is the return, and what the end of the context is worth."""
    batch = filled(pack([episode([0.0, 1.0], n=2, status=status)], discount=1.0), [0.3, 0.1, 0.2, 0.6], next_value=0.7)
    made = critic(make_model(), updates=1, truncation=truncation, clip=0.0)
    assert made.learn(batch, ROUND, generator())["critic/loss"] == pytest.approx(0.5 * target**2, rel=1e-5)


def test_penalties_are_part_of_what_it_predicts(make_model: Make) -> None:
    """As they are part of the rewards of gae and skip_gae."""
    trajectory = episode([0.0, 1.0])
    trajectory.steps[1].penalty = -0.5
    batch = filled(pack([trajectory], discount=1.0), [0.0, 0.0])
    assert critic(make_model(), updates=1).learn(batch, ROUND, generator())["critic/loss"] == pytest.approx(0.5 * 0.25)


def test_values_are_those_of_each_tokens_context(make_model: Make, random_batch: Callable[..., Batch]) -> None:
    """The same as one plain forward pass over each segment alone."""
    batch, made = random_batch(seed=1), critic(make_model(), scale=3.0)
    nn.init.normal_(made.net.head.weight)
    found = made.fill(batch, Round(budget=40))
    for s in range(batch.n_segments):
        own = batch.segment == s
        v = 3 * made.net(batch.token[own][None])[0].detach()
        torch.testing.assert_close(found["next_value"][own], v, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(found["value"][own], torch.cat([v.new_zeros(1), v[:-1]]), atol=1e-4, rtol=1e-4)


def common() -> Batch:
    """Four episodes that begin with the same 40 tokens and go on differently."""
    prompt = [1 + i % 20 for i in range(40)]
    tails = [Completion("x", [2 + i, 5, 9 - i], [-1.0] * 3, "stop", 0) for i in range(4)]
    steps = [Step(prompt, False, x, "x", True, "o", 1.0, "s", 0.0) for x in tails]
    return pack([Trajectory(Task("t", "toy", "train"), "g", [x], outcome=1.0, status=Status.TERMINATED) for x in steps], discount=1.0)


def test_common_beginnings_are_computed_once_and_change_no_value_and_no_gradient(make_model: Make) -> None:
    batch, made = common(), critic(make_model(), scale=3.0)
    nn.init.normal_(made.net.head.weight, generator=generator())
    assert any(isinstance(rows, Tree) for rows in micro_batches(batch, 1000, share=True))
    found, plain = (made.fill(batch, Round(budget=1000, share=share)) for share in (True, False))
    for name in plain:
        torch.testing.assert_close(found[name], plain[name], atol=1e-5, rtol=1e-5)
    shared, alone = (gradient(make_model(), batch, 1000, share=share) for share in (True, False))
    for a, b in zip(shared, alone, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def gradient(model: nn.Module, batch: Batch, budget: int, *, share: bool = False) -> list[torch.Tensor]:
    made = critic(model)
    nn.init.normal_(made.net.head.weight, generator=generator())
    columns = {"old": torch.zeros(batch.n_tokens), "target": batch.token.float() / 7}
    made.backward(replace(batch, streams=columns), budget, share=share)
    return [p.grad for p in made.net.parameters() if p.grad is not None]


@pytest.mark.parametrize("budget", [1, 17, 60])
def test_the_size_of_a_micro_batch_changes_no_gradient(make_model: Make, random_batch: Callable[..., Batch], budget: int) -> None:
    batch = random_batch(seed=2)
    whole, parts = gradient(make_model(), batch, 100_000), gradient(make_model(), batch, budget)
    assert len(whole) == len(parts) > 10
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_the_order_of_trajectories_changes_no_gradient(make_model: Make, trajectory: Callable[..., Trajectory]) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    played = [trajectory("g", "abcd"[:n], [0.0] * (n - 1) + [1.0], rng=rng) for n in (1, 4, 2, 3)]
    one, two = (gradient(make_model(), pack(list(p), discount=1.0), 20) for p in (played, reversed(played)))
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("freeze", "learns"),
    [
        ("none", lambda name: True),
        ("attention", lambda name: ".mlp." in name or name.startswith("head.")),
        ("backbone", lambda name: name.startswith("head.")),
    ],
)
def test_what_is_frozen_stays_and_all_else_moves(make_model: Make, random_batch: Callable[..., Batch], freeze: str, learns: Any) -> None:
    model = make_model()
    policy, made, batch = copy.deepcopy(model.state_dict()), critic(model, freeze=freeze, updates=3), random_batch(seed=1)
    before = copy.deepcopy(made.net.state_dict())
    made.learn(replace(batch, streams=made.fill(batch, ROUND)), ROUND, generator())
    moved = {n for n, p in made.net.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {n for n, _ in made.net.named_parameters() if learns(n)}
    assert all(torch.equal(p, policy[n]) for n, p in model.state_dict().items())  # the policy's own weights are left alone


def test_it_begins_where_the_policy_stands_when_it_is_first_used(make_model: Make, random_batch: Callable[..., Batch]) -> None:
    """A stage before may have trained the model: the critic is a copy of the result."""
    model, batch = make_model(), random_batch()
    made = critic(model)
    with torch.no_grad():
        model.model.norm.weight.add_(1.0)  # type: ignore[union-attr]
    made.fill(batch, ROUND)
    with torch.no_grad():
        model.model.norm.weight.add_(1.0)  # type: ignore[union-attr]
    assert made.net.backbone.norm.weight.mean().item() == pytest.approx(2.0)


def test_adapters_are_merged_into_the_copy(make_model: Make) -> None:
    pytest.importorskip("peft")
    model = add_lora(make_model(), r=2)  # type: ignore[arg-type]
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_B" in n:
                p.normal_(generator=generator())
    made, ids = critic(model), torch.tensor([[1, 2, 3, 4]])
    expected = model.get_base_model().model(input_ids=ids).last_hidden_state  # type: ignore[operator]
    torch.testing.assert_close(made.net.backbone(input_ids=ids).last_hidden_state, expected, atol=1e-4, rtol=1e-4)
    assert all(p.requires_grad for p in made.net.parameters()) and not any("lora" in n for n, _ in made.net.named_parameters())
    assert any("lora" in n for n, _ in model.named_parameters())  # the policy keeps its own


def test_it_learns_which_episodes_succeed(make_model: Make) -> None:
    """The first token says whether an episode is solved: values become 10 and 0."""
    batch = pack([episode([0.0, 10.0 * (i % 2)], first=7 + i % 2) for i in range(6)], discount=1.0)
    made = critic(make_model(), lr=1e-2, scale=10.0, minibatches=2)
    rounds = []
    for _ in range(15):
        batch.streams = made.fill(batch, ROUND)
        rounds.append(made.learn(batch, ROUND, generator()))
    assert rounds[0]["critic/explained_variance"] == pytest.approx(0, abs=0.05)
    assert rounds[-1]["critic/explained_variance"] > 0.95
    assert rounds[-1]["critic/loss"] < 0.05 * rounds[0]["critic/loss"]
    # γ = λ = 1 without whitening: the advantage of a step is what the critic did not expect, so it has become small.
    advantage = call(bind("credit", "gae", {"whiten": False}), batch)
    assert advantage.abs().max() < 2


def test_nothing_to_explain_is_not_explained(make_model: Make) -> None:
    batch = filled(pack([episode([0.0, 1.0]), episode([1.0])], discount=1.0), [0.1, 0.2, 0.3])
    assert "critic/explained_variance" not in critic(make_model()).learn(batch, ROUND, generator())


def test_a_resumed_critic_gives_the_same_numbers(make_model: Make, random_batch: Callable[..., Batch]) -> None:
    batch, other = random_batch(seed=1), make_model()
    with torch.no_grad():
        other.model.norm.weight.add_(1.0)  # type: ignore[union-attr]  # a resumed run may copy the policy at another time
    one, two = critic(make_model(), lr_warmup=6, freeze="attention"), critic(other, lr_warmup=6, freeze="attention")

    def go(made: head) -> tuple[dict[str, float], torch.Tensor]:
        metrics = made.learn(replace(batch, streams=made.fill(batch, ROUND)), ROUND, generator())
        return metrics, made.fill(batch, ROUND)["value"]

    go(one)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    two.load_state_dict(torch.load(file, weights_only=True))
    (a, x), (b, y) = go(one), go(two)
    assert a == b and torch.equal(x, y)


def test_warm_up_of_the_learning_rate_and_of_the_policy(make_model: Make, random_batch: Callable[..., Batch]) -> None:
    made, batch = critic(make_model(), lr=1e-3, lr_warmup=10, updates=2, minibatches=2, warmup=3), random_batch()
    made.learn(batch, ROUND, generator())  # without its streams in the batch it fills them itself
    assert made._optimizer.param_groups[0]["lr"] == pytest.approx(4e-4)  # two passes of two steps
    assert [made.warming(u) for u in range(5)] == [True, True, True, False, False]


@pytest.mark.parametrize(("options", "message"), [({"scale": 0.0}, "scale"), ({"updates": 0}, "updates"), ({"freeze": "all"}, "expected Literal")])
def test_options_that_make_no_sense(make_model: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        critic(make_model(), **options)
