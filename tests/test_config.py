"""Layers merge left to right; what is misspelt or of the wrong type is refused with the place and the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.config import Config, Plugin, build, fingerprint, load, merge, normalise, stages, to_layer
from agentgym.errors import ConfigError


def layered(*layers: dict[str, Any]) -> Config:
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, normalise(layer, "here"))
    return build(merged)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return write


# ------------------------------------------------------------------------------------------------------------------ merging


def test_later_layers_win_and_leave_the_rest() -> None:
    c = layered({"rollout": {"tasks": 3, "top_k": 5}}, {"rollout": {"tasks": 7}}, {"discount": 1})
    assert (c.rollout.tasks, c.rollout.top_k, c.rollout.group_size, c.discount) == (7, 5, 8, 1.0)
    assert isinstance(c.discount, float)


def test_plugins_by_name_and_by_map() -> None:
    assert layered({"credit": "gigpo"}).credit == Plugin("gigpo") == layered({"credit": {"name": "gigpo"}}).credit
    assert layered({"credit": "gigpo"}, {"credit": {"norm": "mean"}}).credit == Plugin("gigpo", {"norm": "mean"})
    assert layered({"optimizer": {"lr": 0.1}}).optimizer == Plugin("adamw", {"lr": 0.1})  # options alone mean the default
    with pytest.raises(ConfigError, match=r"credit: which one\? Give a name \(credit=NAME\); got only options \['norm'\]"):
        layered({"credit": {"norm": "mean"}})


def test_another_name_drops_the_options_of_the_first() -> None:
    first = {"credit": {"name": "gigpo", "step_weight": 2.0}}
    assert layered(first, {"credit": {"name": "grpo", "norm": "mean"}}).credit == Plugin("grpo", {"norm": "mean"})
    assert layered(first, {"credit": {"name": "gigpo", "norm": "mean"}}).credit == Plugin("gigpo", {"step_weight": 2.0, "norm": "mean"})
    assert layered(first, {"credit": "gigpo"}).credit == Plugin("gigpo")  # the bare name starts anew


def test_null_drops() -> None:
    two = {"objectives": {"clip": {"low": 0.1}, "kl": {"coefficient": 0.01}}}
    assert list(layered(two, {"objectives": {"clip": None}}).objectives) == ["kl"]
    assert layered(two, {"objectives": None}).objectives == {} == layered({"loggers": None}).loggers
    assert layered(two, {"objectives": {"clip": None}}, {"objectives": {"clip": {"high": 0.3}}}).objectives["clip"] == Plugin("clip", {"high": 0.3})
    assert layered({"credit": "gigpo"}, {"credit": None}).credit is None
    assert layered({"stages": {"a": {}, "b": {}}}, {"stages": {"a": None}}).stages == {"b": {}}
    assert layered({"stages": {"a": {}}}, {"stages": None}).stages == {}
    assert layered({"rollout": None}).rollout == Config().rollout  # `rollout:` with everything below it commented out
    for key in ("env", "reduce", "policy", "optimizer"):
        with pytest.raises(ConfigError, match=f"{key} cannot be null"):
            layered({key: None})


def test_entries_of_a_map_may_carry_another_name() -> None:
    bonus = {"rewards": {"bonus": {"name": "success", "scale": 2.0}}}
    assert layered(bonus).rewards == {"bonus": Plugin("success", {"scale": 2.0})}
    assert layered(bonus, {"rewards": {"bonus": {"scale": 3.0}}}).rewards == {"bonus": Plugin("success", {"scale": 3.0})}
    assert layered({"rewards": {"bonus": "success"}}).rewards == {"bonus": Plugin("success")}
    assert layered(bonus, {"rewards": {"bonus": "steps"}}).rewards == {"bonus": Plugin("steps")}
    clip = {"objectives": {"clip": {"low": 0.1}}}
    assert layered(clip, {"objectives": {"clip": {"name": "clip", "high": 0.3}}}).objectives["clip"].options == {"low": 0.1, "high": 0.3}


# ----------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "layer, message",
    [
        ({"rolout": {}}, r"here: unknown key 'rolout'\. Did you mean 'rollout'.*Allowed: action, checkpoint"),
        ({"rollout": {"group_sise": 3}}, r"here: rollout: unknown key 'group_sise'\. Did you mean 'group_size'.*Allowed: tasks,"),
        ({"stages": {"warm": {"polici": "expert"}}}, r"here: stages\.warm: unknown key 'polici'\. Did you mean 'policy'"),
        ({"stages": {"warm": {"update": {"cout": 3}}}}, r"here: stages\.warm: update: unknown key 'cout'\. Did you mean 'count'"),
        ({"stages": {"warm": {"model": "tiny"}}}, r"stages\.warm: 'model' cannot differ between stages; set it once at the top"),
        ({"stages": {"warm": {"stages": {}}}}, "'stages' cannot differ between stages"),
        ({"rollout": {"tasks": "four"}}, r"rollout\.tasks: got 'four' \(str\), expected int"),
        ({"rollout": {"tasks": 4.5}}, r"rollout\.tasks: got 4\.5 \(float\), expected int"),
        ({"rollout": {"tasks": True}}, r"rollout\.tasks: got True \(bool\)"),
        ({"rollout": {"stop": "x"}}, r"rollout\.stop: got 'x' \(str\), expected list\[str\]"),
        ({"rollout": {"tasks": None}}, r"rollout\.tasks: got None"),
        ({"discount": "0.9"}, r"discount: got '0\.9' \(str\), expected float"),
        ({"rollout": 3}, "here: rollout: expected a map, got 3"),
        ({"credit": 3}, "here: credit: expected a map, got 3"),
        ({"objectives": "clip"}, "here: objectives: expected a map, got 'clip'"),
        ({"objectives": ["clip"]}, r"here: objectives: expected a map, got \['clip'\]"),
        ({"stages": {"warm": 3}}, r"here: stages\.warm: a configuration is a map of keys, got int"),
        ({"rollout": {"tasks": 0}}, r"rollout\.tasks is 0; it is at least 1"),
        ({"update": {"count": -1}}, r"update\.count is -1; it is at least 0"),
        ({"run": {"workers": 0}}, r"run\.workers is 0"),
        ({"rollout": {"temperature": float("nan")}}, r"temperature is nan"),
        ({7: 8}, "unknown key 7"),
    ],
)
def test_what_is_wrong_is_said(layer: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        layered(layer)


def test_a_layer_is_a_map() -> None:
    assert normalise(None, "empty file") == {}
    with pytest.raises(ConfigError, match="x: a configuration is a map of keys, got list"):
        normalise(["a"], "x")


# ------------------------------------------------------------------------------------------------------------------- stages


def test_stages_are_complete_configurations() -> None:
    c = layered(
        {"credit": "grpo", "update": {"count": 9, "passes": 2}, "optimizer": {"lr": 0.1}},
        {"stages": {"warm": {"policy": "expert", "credit": None, "update": {"count": 1}}, "rl": {"optimizer": {"lr": 0.2}}}},
    )
    warm, rl = stages(c).values()
    assert list(stages(c)) == ["warm", "rl"]
    assert (warm.policy, warm.credit, warm.update.count, warm.update.passes, warm.optimizer.options) == (Plugin("expert"), None, 1, 2, {"lr": 0.1})
    assert (rl.policy, rl.credit, rl.update.count, rl.optimizer.options) == (Plugin("hf"), Plugin("grpo"), 9, {"lr": 0.2})
    assert not warm.stages and list(stages(Config())) == ["rl"]


def test_a_wrong_type_in_a_stage_is_found() -> None:
    with pytest.raises(ConfigError, match=r"update\.count: got 'x'"):
        stages(layered({"stages": {"warm": {"update": {"count": "x"}}}}))


# -------------------------------------------------------------------------------------------------------------------- files


def test_files_then_overrides(write: Callable[[str, str], str]) -> None:
    a, b = write("a.yaml", "credit: {name: gigpo, step_weight: 0.5}\nrollout: {tasks: 3}"), write("b.yaml", "rollout: {tasks: 4, group_size: 2}")
    c = load([a, b], ["rollout.group_size=6", "credit.norm=mean", "rollout.stop=[x, y]", "optimizer.lr=1e-3", "objectives.clip={}", "run.dir=a=b"])
    assert (c.rollout.tasks, c.rollout.group_size, c.rollout.stop, c.run.dir) == (4, 6, ["x", "y"], "a=b")
    assert c.credit == Plugin("gigpo", {"step_weight": 0.5, "norm": "mean"})
    assert c.optimizer.options == {"lr": 1e-3} and c.objectives == {"clip": Plugin("clip")}
    assert load([a], ["credit=null"]).credit is None


def test_bundled_names() -> None:
    assert load(["alfworld"]).env.name == "alfworld"
    assert load(["alfworld"], ["recipe=grpo"]).credit == load(["alfworld", "grpo"]).credit
    assert load(["gigpo"]).credit is not None
    with pytest.raises(ConfigError, match=r"no file 'alfword', and nothing .*Did you mean 'alfworld'.*tasks: alfworld.*recipes: .*gigpo"):
        load(["alfword"])


def test_a_star_drops_what_earlier_layers_put_there() -> None:
    base = normalise({"objectives": {"clip": {"low": 0.1}, "kl": {}}}, "a")
    merged = merge(base, normalise({"objectives": {"*": None, "entropy": {"coefficient": 0.1}}}, "b"))
    assert build(merged).objectives == {"entropy": Plugin("entropy", {"coefficient": 0.1})}
    later = build(merge(merged, normalise({"objectives": {"clip": {}}}, "c"))).objectives
    assert later == {"entropy": Plugin("entropy", {"coefficient": 0.1}), "clip": Plugin("clip")}
    with pytest.raises(ConfigError, match=r"a: objectives: '\*' stands for all entries .* can only be null"):
        normalise({"objectives": {"*": {"low": 1}}}, "a")


def test_a_stage_with_a_recipe_of_its_own(write: Callable[[str, str], str]) -> None:
    task = write(
        "task.yaml",
        "recipe: grpo\nweights: {sign: {}}\nobjectives: {kl: {}}\nstages: {warm: {recipe: imitate, update: {count: 3}}, rl: {}}",
    )
    found = stages(load([task], ["stages.warm.objectives.entropy.coefficient=0.1"]))
    warm, rl = found["warm"], found["rl"]
    assert set(warm.objectives) == {"cross_entropy", "entropy"} and warm.credit is None and warm.weights == {} and warm.update.count == 3
    assert warm.policy == Plugin("expert") and set(rl.objectives) == {"clip", "kl"} and rl.credit == Plugin("grpo", {"norm": "std"})
    with pytest.raises(ConfigError, match="recipes: "):
        load([write("r.yaml", "stages: {warm: {recipe: nope}}")])


def test_the_recipe_of_a_task_file(write: Callable[[str, str], str]) -> None:
    task = write("task.yaml", "recipe: grpo\ncredit: {norm: mean}")
    assert load([task]).credit == Plugin("grpo", {"norm": "mean"})  # the task file goes on top of its recipe
    assert load([task], ["recipe=rloo", "credit.norm=null"]).credit == Plugin("rloo", {"norm": None})
    other = write("other.yaml", "credit: rloo")
    assert load([task, other]).credit == Plugin("rloo") and not load([task, other]).objectives  # recipes given by hand replace it
    assert load([task], ["recipe=gigpo"]).credit == load([task, "gigpo"]).credit  # the same as the file on the command line
    assert load([task], ["recipe=null", "credit.name=gigpo"]).objectives == {}
    with pytest.raises(ConfigError, match="recipes: "):
        load([write("r.yaml", "recipe: nope")])
    with pytest.raises(ConfigError, match=r"recipe: got \['a'\] \(list\), expected str"):
        load([write("l.yaml", "recipe: [a]")])


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [1\nb: 2\n", r"bad\.yaml line 2: not valid YAML"),
        ("rollout: {}\nrollout: {}\n", r"bad\.yaml line 2: not valid YAML \(found duplicate key rollout"),
        ("env: ${nope}\n", r"bad\.yaml: Interpolation key 'nope' not found$"),
        ("- a\n", r"bad\.yaml: a configuration is a map of keys, got list"),
        ("rolout: {}\n", r"bad\.yaml: unknown key 'rolout'"),
    ],
)
def test_bad_files(write: Callable[[str, str], str], text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load([write("bad.yaml", text)])


def test_files_that_are_no_text(write: Callable[[str, str], str], tmp_path: Path) -> None:
    (tmp_path / "bin.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bin\.yaml: 'utf-8' codec"):
        load([tmp_path / "bin.yaml"])
    with pytest.raises(ConfigError, match="no file"):
        load([tmp_path])
    assert load([write("empty.yaml", "")]) == Config()


@pytest.mark.parametrize(
    "override, message",
    [
        ("rollout.tasks", r"override 'rollout\.tasks': expected key=value, e\.g\."),
        ("=3", "expected key=value"),
        ("rollout..tasks=3", "expected key=value"),
        ("run.dir=[a,", r"override 'run\.dir=\[a,'.*not valid YAML"),
        ("rolout.tasks=3", r"override 'rolout\.tasks=3': unknown key 'rolout'"),
        ("rollout.tasks=", r"rollout\.tasks: got None"),
        ("rollout.tasks.x=3", r"rollout\.tasks: got \{'x': 3\}"),
        ("run.dir=${nope}", "Interpolation key 'nope' not found"),
    ],
)
def test_bad_overrides(write: Callable[[str, str], str], override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load([write("a.yaml", "")], [override])


# -------------------------------------------------------------------------------------------------------------- round trips

NAMES = st.sampled_from(["gigpo", "grpo", "lab.ideas:mine", "./x.py:y"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers(), max_size=3)
OPTIONS = st.dictionaries(st.sampled_from(["low", "high", "lr", "data"]), VALUES, max_size=3)
PLUGINS = st.builds(Plugin, NAMES, OPTIONS)
MAPS = st.dictionaries(st.sampled_from(["a", "b", "clip"]), PLUGINS, max_size=2)
STAGES = st.dictionaries(
    st.sampled_from(["warm", "rl"]),
    st.fixed_dictionaries({}, optional={"credit": st.none() | st.just({"name": "grpo"}), "discount": st.floats(0, 1)}),
    max_size=2,
)
CONFIGS = st.builds(
    Config, env=PLUGINS, credit=st.none() | PLUGINS, objectives=MAPS, rewards=MAPS, loggers=MAPS, discount=st.floats(0, 1), stages=STAGES,
    recipe=st.none() | st.text(),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_build_undoes_to_layer(config: Config) -> None:
    layer = to_layer(config)
    assert build(layer) == config
    assert build(json.loads(json.dumps(layer))) == config  # as config.json keeps it
    assert build(normalise(layer, "x")) == config
    assert to_layer(build(layer)) == layer


@settings(max_examples=40, deadline=None)
@given(CONFIGS, CONFIGS)
def test_merging_changes_neither_layer(a: Config, b: Config) -> None:
    one, two = to_layer(a), to_layer(b)
    before = json.dumps([one, two])
    merged = merge(one, two)
    assert build(merge(merged, two)) == build(merged)  # a layer twice is a layer once
    merged["env"]["name"] = "other"
    assert json.dumps([one, two]) == before


def test_fingerprint_is_of_what_decides_the_numbers() -> None:
    base = layered({"credit": "gigpo"})
    for same in ({"run": {"dir": "x", "minutes": 3.0}}, {"loggers": {"console": None}}, {"checkpoint": {"every": 3}}):
        assert fingerprint(layered({"credit": "gigpo"}, same)) == fingerprint(base)
    for other in ({"run": {"seed": 1}}, {"credit": {"norm": "mean"}}, {"rollout": {"tasks": 2}}, {"stages": {"rl": {}}}, {"run": {"workers": 2}}):
        assert fingerprint(layered({"credit": "gigpo"}, other)) != fingerprint(base)
    assert fingerprint(build(json.loads(json.dumps(to_layer(base))))) == fingerprint(base)
