"""Group-relative credit by hand: golden values, single groups, and what PGPO claims."""

from __future__ import annotations

import pytest
import torch

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.trainers.batch import pack
from agentgym.trainers.call import call
from agentgym.types import Status

METHODS = ["grpo", "dr_grpo", "rloo", "gigpo", "hgpo", "pgpo"]


def credit(name, columns, **options):
    found = call(registry.bind("credit", name, options), columns)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", {}, [1.5, -0.5, -0.5, -0.5]),
        ("grpo", {"norm": "mean"}, [0.75, -0.25, -0.25, -0.25]),
        ("dr_grpo", {}, [0.75, -0.25, -0.25, -0.25]),
        ("rloo", {}, [1, -1 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_one_success_in_four(name, options, expected):
    one = {"outcome": torch.tensor([1.0, 0, 0, 0]), "traj_group": torch.zeros(4, dtype=torch.long), "step_traj": torch.arange(4)}
    assert credit(name, one, **options).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "first", "second"),
    [
        ("gigpo", {"step_weight": 0.0}, [0.9129] * 3, [-0.9129] * 3),
        ("gigpo", {"step_weight": 0.0, "stats_over": "trajectories"}, [0.7071] * 3, [-0.7071] * 3),
        ("gigpo", {"step_weight": 0.0, "norm": "mean"}, [5.0] * 3, [-5.0] * 3),
        ("gigpo", {}, [0.9129 + 0.7071, 0.9129 + 1.1547, 0.9129], [-0.9129 - 0.7071, -0.9129 - 0.5774, -0.9129 - 0.5774]),
        ("gigpo", {"norm": "mean"}, [5 + 4.5125, 5 + 6.3333, 5], [-5 - 4.5125, -5 - 3.1667, -5 - 3.1667]),
        ("hgpo", {}, [1.0, 1.1657, 0.0], [-1.0, -0.8828, -0.7071]),
        ("hgpo", {"alpha": 0.0}, [1.0, 1.2071, 0.0], [-1.0, -0.8536, -0.7071]),
        ("hgpo", {"history": 0}, [1.0, 1.4142, 0.0], [-1.0, -0.7071, -0.7071]),
        # with k = 0: (1·0.9129 + 2·1) / 3, (1·0.9129 + 2·1.4142 + 3·1) / 6 and 0.9129 alone
        ("hgpo", {"base_group": True}, [0.9710, 1.1236, 0.9129], [-0.9710, -0.8879, -0.7757]),
        ("pgpo", {}, [0.7071, 1.4292, 0.0], [-0.7071, -0.6371, -0.7920]),
        ("pgpo", {"beta": 0.0}, [0.7071, 1.1547, 0.0], [-0.7071, -0.5774, -0.5774]),
        ("pgpo", {"unbiased": False}, [1.0, 1.4142 + 0.25 * 1.3446, 0.0], [-1.0, -0.7071 - 0.25 * 0.2929, -0.7071 - 0.25 * 1.0517]),
    ],
)
def test_golden(golden, name, options, first, second):
    assert golden.step_return.tolist() == pytest.approx([9.025, 9.5, 10, 0, 0, 0])
    assert credit(name, golden, **options).tolist() == pytest.approx([*first, *second], abs=1e-4)


def test_leave_one_out_by_hand(golden):
    """Φ without the own visit: a 0 and 9.025; b 0, 4.75 and 4.75; c 0. δ: T1 0, 0, 10; T2 −4.275, 0, −4.75."""
    # b: mean −1.5833, std 2.7424 → 0.5774, 0.5774, −1.1547; a: 0.7071, −0.7071; w = 0.25
    found = credit("pgpo", golden, leave_one_out=True).tolist()
    assert found == pytest.approx([1.25 * 0.7071, 1.1547 + 0.1443, 0, -1.25 * 0.7071, -0.5774 + 0.1443, -0.5774 - 0.2887], abs=1e-4)


def test_metrics(golden):
    assert call(registry.bind("credit", "pgpo"), golden)[1] == {"potential_weight": 0.25, "guided": 1.0}
    assert call(registry.bind("credit", "hgpo"), golden)[1]["levels"] == pytest.approx((1 + 2 + 0 + 1 + 2 + 1) / 6)


def test_similar_states_are_one_when_asked(golden):
    """Texts: b and c are alike, so the group of the step part is {b, b, b, c} = {9.5, 0, 0, 10}."""
    golden.state_text = ["You see a cup.", "You are at desk 1.", "You are at desk 2."]
    both = credit("gigpo", golden, similarity=0.9, norm="mean", step_weight=1.0) - credit("gigpo", golden, norm="mean", step_weight=0.0)
    assert both.tolist() == pytest.approx([4.5125, 4.625, 5.125, -4.5125, -4.875, -4.875])
    assert not torch.allclose(credit("pgpo", golden, similarity=0.9), credit("pgpo", golden))
    assert torch.equal(credit("pgpo", golden, similarity=0.99), credit("pgpo", golden))


@pytest.mark.parametrize("name", METHODS)
def test_unknown_options_and_values_are_refused(name):
    with pytest.raises(ConfigError, match="has no option"):
        registry.bind("credit", name, {"nrom": "std"})
    option = "norm" if "norm" in registry.options_of(registry.find("credit", name)) else "singleton"
    with pytest.raises(ConfigError, match=option):
        registry.bind("credit", name, {option: "maybe"})


def test_private_modules_are_no_methods():
    names = registry.names("credit")
    assert {*METHODS, "gae", "skip_gae", "step_gae", "reinforce_pp", "reinforce_pp_baseline"} <= set(names) and not any(
        n.startswith("_") for n in names
    )


def test_sums_that_differ_by_rounding_are_equal():
    noisy = torch.tensor([0.3, 0.1 + 0.2, 0.30000001, 0.29999998])
    assert credit("grpo", {"outcome": noisy, "traj_group": torch.zeros(4, dtype=torch.long), "step_traj": torch.arange(4)}).count_nonzero() == 0


def test_what_a_constant_does_change(golden):
    """Above 0 everywhere, PGPO takes every episode for a success and its potentials count nothing."""
    before = credit("pgpo", golden)
    golden.outcome, golden.step_return = golden.outcome + 1, golden.step_return + 1
    assert not torch.allclose(credit("pgpo", golden), before, atol=0.01)
    assert torch.allclose(credit("pgpo", golden, beta=0.0), credit("pgpo", golden))


def test_failed_episodes_teach_where_success_was_near(trajectory):
    """One solves start → hall → goal, the others fail; in `start`, going to the hall leads towards success and going to the cellar away from it."""
    ways = [("start", "hall", "goal"), ("start", "hall", "attic"), ("start", "cellar", "attic"), ("start", "cellar", "cellar")]
    played = [
        trajectory("g", way, [0, 0, 10 * (way[-1] == "goal")], status=Status.TRUNCATED if i == 3 else Status.TERMINATED) for i, way in enumerate(ways)
    ]
    batch = pack(played, discount=0.95)
    towards, away, away_too = 3, 6, 9  # the first step of each failed episode
    pgpo, gigpo, grpo = (credit(n, batch) for n in ("pgpo", "gigpo", "grpo"))
    assert pgpo[towards] > pgpo[away] + 0.1 and pgpo[away] == pgpo[away_too]
    assert len(set(grpo[3:].tolist())) == 1  # all steps of all failures alike
    assert gigpo[towards] == gigpo[away]  # by returns alone they cannot be told apart
    hall = [i for i in range(12) if batch.step_state[i] == batch.step_state[1]]
    assert pgpo[hall[0]] > pgpo[hall[1]]  # and from the hall, the attic leads away
    assert call(registry.bind("credit", "pgpo"), batch)[1]["potential_weight"] == pytest.approx(0.75**2)


@pytest.mark.parametrize("name", METHODS)
def test_pure(golden, name):
    before = {n: x.clone() for n, x in vars(golden).items() if isinstance(x, torch.Tensor)}
    first = credit(name, golden)
    assert torch.equal(first, credit(name, golden)) and first.shape == (golden.n_steps,) and first.dtype == torch.float32
    assert all(torch.equal(getattr(golden, n), x) for n, x in before.items())
