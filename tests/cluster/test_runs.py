"""Whole runs on a cluster: the same numbers as without, and nothing is left of them, however they end."""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym import store
from agentgym.config import Config, fingerprint, to_layer
from agentgym.errors import ConfigError
from agentgym.store import read_lines
from agentgym.trainers.train import train

CLOCK = re.compile("seconds|wall_s|time|cluster/")
HALF = {"number": 1, "cpus": 0.5}
RAY = pytest.param("ray", marks=pytest.mark.ray)


def numbers(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl without what the clock and the cluster say."""
    return [{k: v for k, v in row.items() if not CLOCK.search(k)} for row in read_lines(folder / "metrics.jsonl")]


def episodes(folder: Path) -> dict[str, bytes]:
    return {f.name: gzip.decompress(f.read_bytes()) for f in sorted(folder.glob("*/*.jsonl.gz"))}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process, of four updates and three evaluations."""
    from agentgym.config import build, normalise

    toy = next(m for n, m in sys.modules.items() if n.endswith("conftest") and hasattr(m, "TOY")).TOY
    folder = tmp_path_factory.mktemp("plain") / "run"
    train(build(normalise({**toy, "run": {**toy["run"], "dir": str(folder)}}, "test")))
    return folder


@pytest.mark.parametrize("name", ["local", RAY])
def test_a_run_with_one_engine_has_the_numbers_of_one_without(
    request: pytest.FixtureRequest, name: str, plain: Path, toy: Callable[..., Config], tmp_path: Path
) -> None:
    """To the last bit: the engine computes what this process would have computed."""
    if name == "ray":
        request.getfixturevalue("local_ray")
    train(toy({"cluster": {"name": name, "engines": HALF}}))
    assert numbers(tmp_path / "run") == numbers(plain)
    assert episodes(tmp_path / "run") == episodes(plain) and len(episodes(plain)) == 7
    row = next(r for r in read_lines(tmp_path / "run" / "metrics.jsonl") if r["stage"] == "rl")
    assert row["cluster/trajectory_bytes"] > 100 and row["cluster/put_mb"] > 0.01 and row["cluster/restarts"] == 0


@pytest.mark.parametrize("name", ["local", RAY])
def test_a_run_with_engines_and_workers_plays_the_same_episodes(
    request: pytest.FixtureRequest, name: str, plain: Path, toy: Callable[..., Config], tmp_path: Path
) -> None:
    """What is computed together depends on the clock here, so that numbers differ by rounding, and nothing else."""
    if name == "ray":
        request.getfixturevalue("local_ray")
    cluster = {"name": name, "engines": {**HALF, "number": 2}, "envs": {**HALF, "concurrency": 4}}
    train(toy({"cluster": cluster}))
    for row, other in zip(numbers(tmp_path / "run"), numbers(plain), strict=True):
        words = [n for n, x in other.items() if isinstance(x, str)]
        assert [row.pop(n) for n in words] == [other.pop(n) for n in words]
        assert row == pytest.approx(other, rel=1e-3, abs=1e-5, nan_ok=True)
    for file in sorted(plain.glob("*/*.jsonl.gz")):
        here = list(store.read(tmp_path / "run" / file.parent.name / file.name))
        for t, u in zip(here, store.read(file), strict=True):
            pairs = zip(t.steps, u.steps, strict=True)
            assert all((a.completion.tokens, a.observation, a.reward) == (b.completion.tokens, b.observation, b.reward) for a, b in pairs)


def test_a_run_that_plays_ahead_in_engines(plain_toy: Callable[..., Config], tmp_path: Path) -> None:
    train(plain_toy({"cluster": {"engines": HALF}, "rollout": {"max_staleness": 1}, "update": {"count": 4}}))
    rows = [r for r in read_lines(tmp_path / "run" / "metrics.jsonl") if r["stage"] == "rl"]
    assert len(rows) == 4 and all(r.get("staleness/max", 0) <= 1 and "rollout/ahead" in r and "cluster/restarts" in r for r in rows)


def test_workers_alone_with_the_model_here(plain: Path, toy: Callable[..., Config], tmp_path: Path) -> None:
    train(toy({"cluster": {"envs": {**HALF, "number": 2, "concurrency": 1}}}))
    tokens = lambda folder: [[s.completion.tokens for s in t.steps] for t in store.read(folder / "trajectories" / "rl-000002.jsonl.gz")]  # noqa: E731
    assert tokens(tmp_path / "run") == tokens(plain)


@pytest.mark.ray
def test_the_trainer_itself_in_an_actor(local_ray: Any, plain: Path, toy: Callable[..., Config], tmp_path: Path) -> None:
    found = train(toy({"cluster": {"name": "ray", "engines": HALF, "trainer": HALF}}))
    assert numbers(tmp_path / "run") == numbers(plain) and found["updates"] == 4


@pytest.mark.ray
@pytest.mark.slow
def test_ray_by_a_word_on_the_command_line(local_ray: Any, toy: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    from agentgym.cli import app

    layer = to_layer(toy({"stages": None, "credit": "gigpo", "objectives": {"clip": {}}, "update": {"count": 1}}, name="out"))
    layer["stages"] = None
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(layer))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "toy.yaml"), "cluster=ray", "cluster.engines.number=1", "cluster.engines.cpus=0.5"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "config.json").read_text())["cluster"] == {"name": "ray", "engines": {"number": 1, "cpus": 0.5}}


def test_a_run_may_go_on_with_another_cluster(toy: Callable[..., Config]) -> None:
    assert fingerprint(toy()) == fingerprint(toy({"cluster": {"name": "ray", "engines": {"number": 4}}}))
    with pytest.raises(ConfigError, match="'cluster' cannot differ between stages"):
        toy({"stages": {"rl": {"cluster": "ray"}}})


def test_without_the_package_ray_it_is_said(toy: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs the package ray: pip install 'agentgym\[ray\]'"):
        train(toy({"cluster": {"name": "ray", "engines": {"number": 1}}}))


# ------------------------------------------------------------------------------------------------------------------ ends

SCRIPT = """
import json, sys
from agentgym import config
from agentgym.trainers.train import train

if __name__ == "__main__":
    train(config.build(json.loads(open(sys.argv[1]).read())))
"""


def marked(mark: str) -> list[int]:
    """Return the processes that have inherited a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["local", RAY])
def test_nothing_is_left_of_a_run_that_is_ended(name: str, end: signal.Signals, toy: Callable[..., Config], tmp_path: Path, obedient: str) -> None:
    """In the middle of its episodes, of steps that take an hour. With Ray, its own: nothing of that is left either."""
    if name == "ray":
        pytest.importorskip("ray", reason="the package ray is not installed (the extra ray)")
    options = {"object_store_mb": 100} if name == "ray" else {}
    cluster = {"name": name, "engines": HALF, "envs": {**HALF, "concurrency": 4}, **options}
    config = toy({"cluster": cluster, "env": {"name": obedient, "size": 3, "hour": str(tmp_path / "hour")}})
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "config.json").write_text(json.dumps(to_layer(config)))
    log, mark = tmp_path / "log", f"AGENTGYM_MARK={secrets.token_hex(8)}"
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | dict([mark.split("=")]) | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as out:
        run = subprocess.Popen([sys.executable, "script.py", "config.json"], cwd=tmp_path, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        until(lambda: (tmp_path / "run" / "config.json").exists() or run.poll() is not None, 60)
        (tmp_path / "hour").touch()
        there = (lambda: len([p for p in marked(mark) if "ray::_Actor" in title(p)]) == 2) if name == "ray" else (lambda: len(marked(mark)) >= 5)
        until(lambda: there() or run.poll() is not None, 60)
        time.sleep(3.0)
        assert run.poll() is None, log.read_text()
        os.kill(run.pid, end)
        run.wait(60)
        # Two helpers of Ray's own (it calls them agents) notice only after a minute that it was killed.
        until(lambda: not [p for p in marked(mark) if end == signal.SIGINT or "Agent" not in title(p)], 40)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
    assert (end == signal.SIGKILL) or "agentgym resume" in log.read_text()


def until(happens: Callable[[], Any], seconds: float) -> None:
    stop = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < stop
        time.sleep(0.05)
