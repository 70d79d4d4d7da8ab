"""SAPO's critic: targets by hand, where its two kinds of values are, and that the policy's own pass trains them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.renderer import Renderer
from agentgym.trainers import reserve
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.call import call
from agentgym.trainers.chain import chain_of_turns
from agentgym.trainers.critic.autoregressive import autoregressive, targets
from agentgym.trainers.model import load_model
from agentgym.trainers.streams import Round, fill
from agentgym.trainers.update import Updater
from agentgym.types import Completion, Status, Step, Task, Trajectory

ROUND = Round(budget=64)
SMALL: dict[str, Any] = {"layers": 2, "hidden": 32, "heads": 2, "head_dim": 16, "ffn": 48, "vocab": 264}
PAIR = (192, 193)  # the bytes 0xFE and 0xFF


def critic(seed: int = 0, **options: Any) -> tuple[autoregressive, Any]:
    model, tokenizer = load_model("tiny", seed=seed, **SMALL)
    made: autoregressive = bind("critic", "autoregressive", options)(model, Renderer(tokenizer))
    return made, model


def step(prompt: list[int], written: list[int], reward: float = 0.0, *, new_segment: bool = False) -> Step:
    return Step(prompt, new_segment, Completion("x", written, [-2.0] * len(written), "stop", 0), "x", True, "o", reward, "s", 0.0)


def episode(*steps: Step, status: Status = Status.TERMINATED) -> Trajectory:
    return Trajectory(Task("t", "toy", "train"), "g", list(steps), outcome=sum(s.reward for s in steps), status=status)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("status", [Status.TERMINATED, Status.TRUNCATED])
def test_targets_by_hand(status: Status) -> None:
    """METHODS 7.3: V = (.2, .5), r = (0, 1), γ = 1, λ = .95 → y^V = (0.975, 1.0). With Q = (.3, .6): y^Q = (0.6, 1). Cut off is terminal."""
    two = episode(step([5, 6], [7, 8]), step([9], [10], 1.0), status=status)
    batch = pack([two, episode(step([5], [6], 0.25))], discount=1.0)
    value, after = torch.zeros(2, batch.n_tokens)
    value[[2, 5, 7]] = torch.tensor([0.2, 0.5, 0.9])  # of the first token of each step
    after[[3, 5, 7]] = torch.tensor([0.3, 0.6, 0.7])  # with the last one
    chain = chain_of_turns(batch.sampled, batch.step, batch.step_traj)
    state, action = targets(batch, value, after, chain, discount=1.0, lam=0.95)
    torch.testing.assert_close(state, torch.tensor([0.975, 1.0, 0.25]))
    torch.testing.assert_close(action, torch.tensor([0.6, 1.0, 0.25]))
    assert targets(batch, value, after, chain, discount=0.5, lam=0.95)[1].tolist() == pytest.approx([0.3, 1.0, 0.25])


def test_each_step_has_a_state_and_an_action() -> None:
    """Two steps in one segment, one in a segment of its own, one that says nothing, one that reads nothing new."""
    made, _ = critic()
    batch = pack(
        [
            episode(step([5, 6], [7, 8]), step([9], [10]), step([5, 6, 9], [11], 1.0, new_segment=True)),
            episode(step([5, 6], [7]), step([9, 12], []), step([], [13, 14], 1.0)),
        ],
        discount=1.0,
    )
    found = made.fill(batch, ROUND)
    #                                       5  6  7  8  9 10 | 5  6  9 11 | 5  6  7  9 12 13 14
    assert found["value_kind"].tolist() == [0, 1, 0, 2, 1, 2, 0, 0, 1, 2, 0, 1, 2, 0, 1, 0, 2]
    assert not found["value_target"][found["value_kind"] == 0].any()
    # The last step of each trajectory ends it: Q there is its reward, and V, with one turn to go, too.
    assert found["value_target"][[8, 9, 14, 16]].tolist() == pytest.approx([0.1] * 4)


def test_where_a_step_reads_nothing_the_token_counts_as_state() -> None:
    batch = pack([episode(step([5], [7]), step([], [8], 1.0))], discount=1.0)
    assert critic()[0].fill(batch, ROUND)["value_kind"].tolist() == [1, 1, 2]


def test_the_streams_are_the_models_own_values(random_batch: Callable[..., Batch]) -> None:
    made, model = critic(scale=3.0, tau=2.0)
    batch = random_batch(seed=5)
    passes: list[int] = []
    model.model.register_forward_hook(lambda *_: passes.append(1))
    found = made.fill(batch, Round(budget=100_000))
    assert len(passes) == 1  # one rectangle, one pass
    w = model.get_output_embeddings().weight
    for s in range(batch.n_segments):
        own = (batch.segment == s).nonzero()[:, 0]
        for i, n in enumerate(own.tolist()):  # each context alone
            hidden = model.model(batch.token[own[: i + 1]][None]).last_hidden_state[0, -1]
            p = (hidden @ (w[PAIR[0]] - w[PAIR[1]]) / 2).clamp(-1, 1).item()
            assert found["value_old"][n].item() == pytest.approx(p, abs=1e-5)
            assert found["next_value"][n].item() == pytest.approx(3 * p, abs=1e-4)
            assert found["value"][n].item() == pytest.approx(3 * found["value_old"][n - 1].item() if i else 0, abs=1e-4)


def test_reserved_once_with_the_options_of_the_run() -> None:
    model, tokenizer = load_model("tiny", **SMALL)
    bound = bind("critic", "autoregressive", {"tau": 5.0, "warmup": 2, "tokens": ["ý", 180]})
    autoregressive.prepare(model, tokenizer, **bound.keywords)
    made = bound(model, Renderer(tokenizer))
    assert reserve.reserved(model) == {"plus": tokenizer.convert_tokens_to_ids("ý"), "minus": 180, "scale": 5.0}
    assert len(model.get_output_embeddings()._forward_hooks) == 1
    assert [made.warming(u) for u in range(3)] == [True, True, False]
    assert made.state_dict() == {}
    made.load_state_dict({})


@pytest.mark.parametrize(("tokens", "message"), [(["nope", 180], "no token 'nope'"), (["<|end|>", 180], "ends turns"), ([180, 180], "must differ")])
def test_tokens_that_cannot_be_reserved(tokens: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        critic(tokens=tokens)
    with pytest.raises(ConfigError, match="above 0"):
        critic(scale=0.0)


def test_metrics_by_hand() -> None:
    """γ = 1, λ = 0.95: A = (0.775, 0.5) and y^V as above; y^Q = (Q_2, 1)."""
    made, _ = critic(scale=10.0, discount=1.0, warmup=0)
    batch = pack([episode(step([5, 6], [7]), step([9], [10], 1.0))], discount=1.0)
    batch.streams = dict.fromkeys(made.provides, torch.zeros(5))
    batch.streams |= {"value": torch.tensor([0, 0, 0.2, 0, 0.5]), "next_value": torch.tensor([0, 0, 10.0, 0, 0.5])}
    assert made.learn(batch, ROUND, generator()) == pytest.approx(
        {
            "critic/value_mean": 0.35,
            "critic/clipped": 0.25,
            "critic/explained_variance": 1 - 0.275**2 / 0.025**2,
            "critic/action_explained_variance": 1 - (-9.5 - 0.5) ** 2 / 0.5**2,
        },
        rel=1e-4,
    )


def learner(model: nn.Module, coefficient: float = 0.5, budget: int = 64) -> Updater:
    """Return policy, V and Q losses in one pass, as in the recipe; here the policy stays where it is."""
    return Updater(
        model,
        torch.optim.AdamW(model.parameters(), lr=3e-3),
        [(of, bind("objective", "value", {"of": of}), coefficient) for of in ("state", "action")] + [("clip", bind("objective", "clip"), 1.0)],
        bind("reduce", "token_mean"),
        tokens_per_microbatch=budget,
    )


def outcomes() -> Batch:
    """Two kinds of episodes: what is read first decides about the reward at the end."""
    return pack([episode(step([20 + i % 2, 6], [7]), step([9], [10], 10.0 * (i % 2))) for i in range(4)], discount=1.0)


def test_the_policys_pass_teaches_it_what_states_and_actions_are_worth() -> None:
    made, model = critic(discount=1.0, warmup=0)
    updater, batch, rounds = learner(model), outcomes(), []
    backbone = copy.deepcopy(model.model.layers[0].state_dict())
    for update in range(50):
        updater_round = Round([], update, 1.0, 64)
        batch.streams = {}
        fill(batch, made.provides, model, None, updater_round, {"critic": made})
        batch.set_advantage(torch.zeros(batch.n_steps))
        rounds.append(made.learn(batch, updater_round, generator()) | updater.run(batch, generator=generator()))
    assert rounds[-1]["critic/explained_variance"] > 0.9 > rounds[0]["critic/explained_variance"]
    assert rounds[-1]["critic/action_explained_variance"] > 0.9
    assert rounds[-1]["loss/state"] < 0.1 * rounds[0]["loss/state"] and rounds[-1]["loss/action"] < 0.1 * rounds[0]["loss/action"]
    assert any(not torch.equal(p, backbone[n]) for n, p in model.model.layers[0].state_dict().items())  # it reached the backbone
    advantage = call(bind("credit", "step_gae", {"discount": 1.0}), batch)
    assert advantage.shape == (batch.n_steps,) and torch.isfinite(advantage).all()


def test_the_first_rounds_fit_two_rows_and_move_nothing_else() -> None:
    """Least squares over the returns of two rounds: the same as with both in one, and all else of the model stays."""
    made, model = critic(discount=1.0, warmup=2)
    tokens = model.get_output_embeddings().weight
    before, mean = copy.deepcopy(model.state_dict()), tokens[list(PAIR)].mean(0).detach()
    halves = [pack([episode(step([20 + i, 6], [7]), step([9], [10], 10.0 * (i % 2))) for i in r], discount=1.0) for r in (range(3), range(3, 6))]
    for update, batch in enumerate(halves):
        other, _ = critic(discount=1.0, warmup=2)
        other.load_state_dict(made.state_dict())  # a resumed run goes on with the sums
        made.learn(batch, Round([], update, 1.0, 9), generator())
        assert other.learn(batch, Round([], update, 1.0, 64), generator()).keys() and other.state_dict().keys() == {"xx", "xy"}
    other.learn(halves[0], Round([], 2, 1.0, 64), generator())
    assert other.state_dict() == {}
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    rows = (tokens != before["lm_head.weight"]).any(1).nonzero()[:, 0]
    assert moved == {"model.embed_tokens.weight"} and rows.tolist() == sorted(PAIR)  # one matrix: the embeddings are tied
    torch.testing.assert_close(tokens[list(PAIR)].mean(0), mean, atol=1e-5, rtol=0)
    whole, model_2 = critic(discount=1.0, warmup=1)
    both = pack([episode(step([20 + i, 6], [7]), step([9], [10], 10.0 * (i % 2))) for i in range(6)], discount=1.0)
    whole.learn(both, ROUND, generator())
    torch.testing.assert_close(model_2.get_output_embeddings().weight[list(PAIR)], tokens[list(PAIR)], atol=1e-3, rtol=1e-3)
    both.streams = made.fill(both, ROUND)
    assert made.learn(both, Round([], 2), generator())["critic/explained_variance"] > 0.9


def test_adapters_leave_nothing_to_fit() -> None:
    pytest.importorskip("peft")
    model, tokenizer = load_model("tiny", lora={"r": 2}, **SMALL)
    with pytest.raises(ConfigError, match=r"critic\.warmup=0"):
        autoregressive(model, Renderer(tokenizer), warmup=1)
    assert autoregressive(model, Renderer(tokenizer), warmup=0).fill(outcomes(), ROUND)["value_old"].abs().max() > 0


@pytest.mark.parametrize("budget", [1, 13])
def test_the_size_of_a_micro_batch_changes_no_gradient(random_batch: Callable[..., Batch], budget: int) -> None:
    found = []
    for size in (100_000, budget):
        made, model = critic()
        batch = random_batch(seed=3)
        batch.streams = made.fill(batch, Round(budget=size))
        batch.set_advantage(torch.ones(batch.n_steps))
        updater = learner(model, budget=size)
        updater.optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # the weights then show the gradient
        updater.__post_init__()
        updater.step(batch)
        found.append(list(model.parameters()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
