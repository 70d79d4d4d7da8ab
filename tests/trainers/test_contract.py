"""One contract for every plug-in of every kind: the signature is the schema, and what should be pure is."""

from __future__ import annotations

import copy
import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.trainers import streams
from agentgym.trainers.batch import Batch
from agentgym.trainers.call import FOR_CREDIT, LIVE, PACKED, call, check, takes_state

EVERY = [(k, n) for k in registry.KINDS for n in registry.names(k)]
PURE = [(k, n) for k, n in EVERY if k in ("credit", "weight", "objective", "reduce")]
# What an option may not be called, since a configuration gives it another meaning.
RESERVED = {"name", "coefficient", "__replace__"}
DEFAULTS = {"fixed_length": {"length": 8}, "value": {"of": "state"}}
# What teachers and critics provide, and what only credit sees.
FILLED = {n for k, p in EVERY if k in ("teacher", "critic") for n in registry.find(k, p).provides}
# These normalise over the whole batch, by definition.
WHOLE_BATCH = {"reinforce_pp", "reinforce_pp_baseline", "gae", "step_gae"}


def ids(pairs: list[tuple[str, str]]) -> list[str]:
    return [f"{k}-{n}" for k, n in pairs]


def signature(target: Any) -> Callable[..., Any]:
    return target.__init__ if inspect.isclass(target) else target


@pytest.mark.parametrize("kind, name", EVERY, ids=ids(EVERY))
def test_the_signature_is_the_schema(kind: str, name: str) -> None:
    target = registry.find(kind, name)
    assert callable(target)
    hints = typing.get_type_hints(signature(target))
    for option, parameter in registry.options_of(target).items():
        assert option in hints and hints[option] is not Any, f"the option {option} has no type"
        assert option not in RESERVED, f"{kind}.{option} cannot be set: in a configuration that key means something else"
        if parameter.default is not parameter.empty:
            registry.fit(parameter.default, hints[option], option)  # its default is of its own type
    for column in registry.columns_of(target):
        assert column in hints, f"the column {column} has no type"


@pytest.mark.parametrize("kind, name", EVERY, ids=ids(EVERY))
def test_the_docstring_says_what_it_is(kind: str, name: str) -> None:
    doc = inspect.getdoc(registry.find(kind, name))
    assert doc, "no docstring"
    first = doc.splitlines()[0]
    assert len(first) > 10 and first[0].isupper()
    line = registry.names(kind)[name]
    assert line and "\n" not in line


@pytest.mark.parametrize("kind, name", [p for p in EVERY if p[0] != "env"], ids=ids([p for p in EVERY if p[0] != "env"]))
def test_unknown_options_are_refused_with_help(kind: str, name: str) -> None:
    target = registry.find(kind, name)
    options = [o for o in registry.options_of(target) if o != "state"]
    with pytest.raises(ConfigError, match=rf"{kind} '{name}' has no option 'zzz'\..*Options: "):
        registry.check_options(kind, name, target, {"zzz": 1})
    for option in (o for o in options if len(o) > 3 and o not in registry.SUPPLIED.get(kind, ())):
        with pytest.raises(ConfigError, match=rf"Did you mean .*'{option}'"):
            registry.check_options(kind, name, target, {option + "x": 1})


@pytest.fixture
def batch(random_batch: Callable[..., Batch]) -> Batch:
    out = random_batch(seed=3)
    g = torch.Generator().manual_seed(0)
    for stream in streams.BUILT_IN:
        out.streams[stream] = torch.rand(out.n_tokens, generator=g) - (0.0 if stream == "entropy" else 3.0)
    for stream in sorted(FILLED - {"teacher_ids", "teacher_logq", "value_kind", "teacher_mask"}):
        out.streams[stream] = torch.rand(out.n_tokens, generator=g) - 0.5
    out.streams["value_kind"] = torch.randint(3, (out.n_tokens,), generator=g)
    out.streams["teacher_mask"] = (out.sampled & (torch.rand(out.n_tokens, generator=g) < 0.5)).float()
    out.streams["teacher_ids"] = torch.arange(4).repeat(out.n_tokens, 1)
    out.streams["teacher_logq"] = torch.randn(out.n_tokens, 5, generator=g).log_softmax(-1)[:, :4]
    out.advantage = torch.randn(out.n_tokens, generator=g)
    out.weight = torch.rand(out.n_tokens, generator=g)
    return out


def run(kind: str, name: str, batch: Batch) -> tuple[Any, dict[str, Tensor]]:
    """Call a plug-in as the trainer does; return what it gave and the extra columns that it saw."""
    fn = registry.bind(kind, name, DEFAULTS.get(name, {}))
    g = torch.Generator().manual_seed(1)
    n = batch.n_tokens
    extra: dict[str, Any] = {}
    if kind == "objective":
        extra = {name: torch.rand(n, generator=g).requires_grad_() for name in ("entropy", "value_live")}
        extra |= {"logp": (-3 * torch.rand(n, generator=g)).requires_grad_()}
        extra |= {"logq": torch.randn(n, 5, generator=g).log_softmax(-1)[:, :4].clone().requires_grad_()}
    if kind == "reduce":
        extra = {"loss": torch.randn(n, generator=g).requires_grad_(), "weight": batch.weight}
    if takes_state(fn):
        extra["state"] = {}
    return call(fn, batch, **extra), extra


def tensors(x: Any) -> list[Tensor]:
    found = [x] if isinstance(x, Tensor) else [t for part in x for t in (part.values() if isinstance(part, dict) else [part])]
    return [torch.as_tensor(t) for t in found]


@pytest.mark.parametrize("kind, name", PURE, ids=ids(PURE))
def test_columns_are_known_ones(kind: str, name: str) -> None:
    fn = registry.bind(kind, name, DEFAULTS.get(name, {}))
    own = {"objective": set(LIVE), "credit": set(FOR_CREDIT), "reduce": {"loss"}}.get(kind, set())
    check([fn], {*PACKED, *streams.available(), *FILLED, "advantage", "weight", *own})


@pytest.mark.parametrize("kind, name", PURE, ids=ids(PURE))
def test_pure_functions_write_nothing_and_repeat_themselves(kind: str, name: str, batch: Batch) -> None:
    before = copy.deepcopy(batch)
    state = torch.random.get_rng_state()
    first, seen = run(kind, name, batch)
    second, _ = run(kind, name, batch)
    assert all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True)), "two calls differ"
    assert torch.equal(state, torch.random.get_rng_state()), "it draws from the global generator"
    for column, x in {**vars(before), **before.streams}.items():
        if isinstance(x, Tensor):
            now = getattr(batch, column) if hasattr(batch, column) else batch.streams[column]
            assert torch.equal(x, now), f"it wrote into {column}"
    for column, x in seen.items():
        assert not isinstance(x, Tensor) or x._version == 0 or not x.requires_grad, f"it wrote into {column}"
    assert all(torch.isfinite(x).all() for x in tensors(first))


@pytest.mark.parametrize("kind, name", PURE, ids=ids(PURE))
def test_shapes_and_gradients(kind: str, name: str, batch: Batch) -> None:
    out, seen = run(kind, name, batch)
    n, s = batch.n_tokens, batch.n_steps
    if kind == "credit":
        out, metrics = out if isinstance(out, tuple) else (out, {})
        assert all(isinstance(x, float) for x in metrics.values())
        assert out.shape in ((s,), (n,)) and not out.requires_grad
    if kind == "weight":
        assert out.shape == (n,) and not out.requires_grad and (out >= 0).all()
    if kind == "objective":
        loss, metrics = out if isinstance(out, tuple) else (out, {})
        assert loss.shape == (n,) and all(x.shape == (n,) and not x.requires_grad for x in metrics.values())
        loss.sum().backward()
        assert any(x.grad is not None for x in seen.values() if isinstance(x, Tensor)), "nothing can be learned from it"
    if kind == "reduce":
        assert out.shape == ()
        (grad,) = torch.autograd.grad(out, seen["loss"])
        double = call(registry.bind(kind, name, DEFAULTS.get(name, {})), batch, loss=2 * seen["loss"], weight=batch.weight)
        torch.testing.assert_close(double, 2 * out)  # linear in the loss: micro-batches cannot change the gradient
        torch.testing.assert_close((grad * seen["loss"]).sum(), out)


def credit(name: str, batch: Batch) -> Tensor:
    found, _ = run("credit", name, batch)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", sorted(set(registry.names("credit")) - WHOLE_BATCH))
def test_credit_stays_inside_the_group(name: str, batch: Batch) -> None:
    """The other groups' results change nothing."""
    before = credit(name, batch)
    other = copy.deepcopy(batch)
    others_traj = other.traj_group != 0
    other.outcome[others_traj] += 7.0
    other.step_return[others_traj[other.step_traj]] *= 3.0
    other.step_reward[others_traj[other.step_traj]] += 1.0
    after = credit(name, other)
    mine = ~others_traj[batch.step_traj]
    if before.shape[0] == batch.n_tokens:
        mine = mine[batch.step]
    torch.testing.assert_close(before[mine], after[mine])


@pytest.mark.parametrize("name", list(registry.names("optimizer")))
def test_an_optimizer_goes_on_from_its_state(name: str, make_model: Callable[[], torch.nn.Module]) -> None:
    def steps(model: torch.nn.Module, optimizer: Any, n: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        for _ in range(n):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=g)
            optimizer.step()

    one = make_model()
    first = registry.bind("optimizer", name)(one.named_parameters())
    steps(one, first, 2, 0)
    two = copy.deepcopy(one)
    second = registry.bind("optimizer", name)(two.named_parameters())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(one, first, 2, 1)
    steps(two, second, 2, 1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def decisions_of(tasks: list[str], path: Path) -> str:
    """Write one decision of each task, as `agentgym pivots` does."""
    start = {"history": [], "now": {"observation": "o", "admissible": None}, "info": {}}
    rows = [{"task": {"id": t, "env": "toy", "split": "train"}, "start": start, "expected": {"action": "a", "observation": "o"}} for t in tasks]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.mark.parametrize("name", list(registry.names("sampler")))
def test_a_sampler_goes_on_from_its_state(name: str, tmp_path: Path) -> None:
    tasks = [f"t{i}" for i in range(7)]
    make = registry.bind("sampler", name, {"file": decisions_of(tasks, tmp_path / "file.jsonl")} if name == "pivots" else {})
    one, two = make(tasks, 5), make(tasks, 5)
    one.take(10)
    one.observe([])
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    assert one.take(9) == two.take(9)
    assert make(tasks, 5).take(14) == make(tasks, 5).take(14)
