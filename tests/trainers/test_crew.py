"""Several processes, one model: the same numbers as one process, and nobody waits for the dead."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from agentgym.config import Config, stages
from agentgym.errors import ConfigError, PolicyError
from agentgym.renderer import Renderer
from agentgym.trainers import crew as crew_module
from agentgym.trainers import forward, setup
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.crew import Crew
from agentgym.trainers.forward import Rows
from agentgym.trainers.model import load_model, trainable
from agentgym.trainers.session import make_gym
from agentgym.trainers.streams import Reference, score
from agentgym.trainers.train import train
from agentgym.trainers.update import Updater
from agentgym.types import Trajectory


def parts(config: Config) -> tuple[Any, Any]:
    return load_model("tiny", corpus=setup.corpus(config), seed=0, **config.model.options)


@pytest.fixture
def crewed(toy: Callable[..., Config]) -> Iterator[tuple[Config, Any, Any, Crew]]:
    config = toy({"run": {"workers": 2}})
    model, tokenizer = parts(config)
    crew = Crew(config, model, tokenizer, n=2)
    yield config, model, tokenizer, crew
    crew.close()


def played(config: Config, model: Any, tokenizer: Any, crew: Crew | None) -> list[Trajectory]:
    """Play four groups of two with the stage `rl`, in a fresh gym."""
    c = stages(config)["rl"]
    renderer = Renderer(tokenizer)
    tasks = setup.tasks_of(config, "train")[:4]

    async def work() -> list[Trajectory]:
        policy = setup.make_policy(c.policy, model, renderer)
        agent = setup.make_agent(c, policy, renderer)
        gym = make_gym(crew, c, "train", "rl")
        jobs = [gym.play(agent, t, group=f"g{i}", seed=10 * i + k) for i, t in enumerate(tasks) for k in range(2)]
        out = await asyncio.gather(*jobs)
        gym.close()
        await policy.close()
        return list(out)

    return asyncio.run(work())


def batch_of(config: Config, model: Any, tokenizer: Any) -> Batch:
    c = stages(config)["rl"]
    batch = pack(played(config, model, tokenizer, None), discount=0.95)
    batch.set_advantage(torch.randn(batch.n_steps, generator=torch.Generator().manual_seed(0)))
    assert c.credit
    return batch


def test_two_processes_give_the_numbers_of_one(crewed: tuple[Config, Any, Any, Crew]) -> None:
    """Gradients, metrics and weights after two steps; and the episodes of one crew twice."""
    config, model, tokenizer, crew = crewed
    assert played(config, model, tokenizer, crew) == played(config, model, tokenizer, crew)
    assert [t.task for t in played(config, model, tokenizer, crew)] == [t.task for t in played(config, model, tokenizer, None)]

    batch = batch_of(config, model, tokenizer)
    c = copy.deepcopy(stages(config)["rl"])
    c.update.tokens_per_microbatch = 200  # several micro-batches, so that there is something to share
    alone = copy.deepcopy(model)
    results = {}
    for name, m, team in (("one", alone, None), ("two", model, crew)):
        updater = Updater.from_config(c, m, crew=team, stage="rl")
        grads: list[torch.Tensor] = []
        apply = updater._apply

        def keep(updater: Updater = updater, grads: list[torch.Tensor] = grads, apply: Any = apply) -> dict[str, float]:
            grads.extend(p.grad.clone() for p in updater.model.parameters() if p.grad is not None)
            return apply()  # type: ignore[no-any-return]

        updater._apply = keep  # type: ignore[method-assign]
        metrics = [updater.run(batch, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
        results[name] = grads, metrics
    assert len(list(results["one"][0])) == len(list(results["two"][0])) > 0
    for a, b in zip(results["one"][0], results["two"][0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
    for a, b in zip(results["one"][1], results["two"][1], strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == pytest.approx({k: v for k, v in b.items() if k != "seconds"}, abs=1e-5)
    for (n, p), q in zip(alone.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-3, msg=n)

    crew.load(2)  # the helpers see the new weights: they lie in shared memory, and their caches are dropped
    after = played(config, model, tokenizer, crew)
    assert {t.steps[0].completion.version for t in after} == {0, 2}  # this process's fresh policy, and the helper's
    crew.load(0)
    second = [t for t in played(config, model, tokenizer, crew) if t.group in ("g1", "g3")]
    assert [s.completion.tokens for t in second for s in t.steps] == [
        s.completion.tokens for t in played(config, model, tokenizer, None) if t.group in ("g1", "g3") for s in t.steps
    ]


@pytest.mark.parametrize("lora", [False, True])
def test_log_probabilities_are_dealt_too(toy: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, lora: bool) -> None:
    """The policy's as it is now, and the reference's as it was when it was lent, adapters off or a copy; small passes, so that both have some."""
    config = toy({"run": {"workers": 2}, "model": {"lora": {"r": 4}} if lora else {}})
    model, tokenizer = parts(config)
    crew, batch = Crew(config, model, tokenizer, n=2), batch_of(config, model, tokenizer)
    monkeypatch.setattr(forward, "_DEALT", 64)
    how = {"temperature": 0.7, "budget": 200, "entropy": True}
    reference = Reference(model)
    assert (reference.own is None) == lora
    crew.lend(reference.own)
    before = score(model, batch, **how)
    assert before[0].min() < -1 and before[1].max() > 1
    with torch.no_grad():
        for p in trainable(model):
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    counted = [0]
    original = forward.live
    monkeypatch.setattr(crew_module, "live", lambda *args, **kw: (counted.append(len(args[1].index)), original(*args, **kw))[1])
    after = score(model, batch, crew=crew, **how)
    frozen = reference.score(batch, crew=crew, temperature=0.7, budget=200)
    crew.close()
    assert 0 < sum(counted) < 2 * batch.n_tokens  # this process computed a part
    for mine, alone in ((after, score(model, batch, **how)), ((frozen,), before[:1])):
        for a, b in zip(mine, alone, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(after[0], before[0], atol=0.1)


def test_two_runs_of_a_crew_are_the_same(toy: Callable[..., Config], tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(toy({"run": {"workers": 2}}, name=name))
    a, b = ({f.name: gzip.decompress(f.read_bytes()) for f in (tmp_path / n).glob("*/*.jsonl.gz")} for n in "ab")
    assert a == b and len(a) == 7


def test_work_is_dealt_by_size_alone() -> None:
    crew = object.__new__(Crew)
    crew.n = 3
    rows = [Rows(torch.zeros(1, n), torch.ones(1, n, dtype=torch.bool), torch.arange(n)) for n in (5, 9, 1, 7, 3, 8)]
    shares = crew.share(rows)
    assert [[r.cells for r in s] for s in shares] == [[9, 1], [8, 3], [7, 5]]
    assert sorted(id(r) for s in shares for r in s) == sorted(map(id, rows))


def test_a_crew_is_for_one_cpu(toy: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"run\.workers=2 shares the model between processes of one CPU; with device=cuda use run\.workers=1"):
        Crew(toy({"run": {"device": "cuda", "workers": 2}}), None, None, n=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["rollout", "update", "evaluation"])
def test_a_dead_helper_ends_the_run_with_a_word(toy: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    config = toy({"run": {"workers": 2}, "env": {"size": 6, "max_steps": 20}, "rollout": {"max_tokens": 8}})

    def shoot(crew: Crew) -> None:
        os.kill(crew._mates[0].process.pid, signal.SIGKILL)  # type: ignore[arg-type]

    if when == "update":
        start = Crew.start
        monkeypatch.setattr(Crew, "start", lambda self, *a: (start(self, *a), shoot(self))[0])
    else:
        send = Crew._flush
        seen: list[int] = []

        def flush(self: Crew, loop: Any) -> None:
            send(self, loop)
            seen.append(1)
            if len(seen) == (1 if when == "evaluation" else 2):
                shoot(self)

        monkeypatch.setattr(Crew, "_flush", flush)
    started = time.monotonic()
    with pytest.raises(PolicyError, match=r"helper process agentgym-helper-1 died \(exit code -9;.*agentgym resume") as e:
        train(config)
    assert time.monotonic() - started < 60 and config.run.dir in e.value.__notes__[0]


def test_a_helpers_own_failure_comes_with_its_traceback(crewed: tuple[Config, Any, Any, Crew]) -> None:
    config, model, tokenizer, crew = crewed
    batch = batch_of(config, model, tokenizer)
    crew.start("no such stage", [[], []], batch, [])
    with pytest.raises(PolicyError, match=r"(?s)helper process agentgym-helper-1 failed:.*KeyError: 'no such stage'"):
        crew.finish(None)
    pids = [m.process.pid for m in crew._mates]
    crew.close()
    assert not any(running(p) for p in pids if p)


def test_an_episode_that_a_helper_cannot_begin_is_broken_and_keeps_nobody_waiting(crewed: tuple[Config, Any, Any, Crew]) -> None:
    config, _, _, crew = crewed
    task = setup.tasks_of(config, config.splits.train)[0]
    played = asyncio.run(asyncio.wait_for(crew.play(1, "no such stage", task, "g", 0), 60))
    assert played.failed and played.error == "KeyError: 'no such stage'" and "Traceback" in played.info["traceback"]
    crew.close()


ORPHAN = """
import sys, time
from pathlib import Path
from agentgym.trainers.session import Session
from agentgym.trainers.train import train

def main():
    record = Session.record
    def slow(self, *args):
        record(self, *args)
        print(self.crew._mates[0].process.pid, flush=True)
        time.sleep(60)
    Session.record = slow
    train(Session.config_of(Path(sys.argv[1])))

if __name__ == "__main__":
    main()
"""


def test_helpers_of_a_killed_run_go_by_themselves(toy: Callable[..., Config], tmp_path: Path) -> None:
    import json

    from agentgym.config import to_layer

    config = toy({"run": {"workers": 2}})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.json").write_text(json.dumps(to_layer(config)))
    (tmp_path / "orphan.py").write_text(ORPHAN)
    with subprocess.Popen([sys.executable, str(tmp_path / "orphan.py"), str(tmp_path / "c")], stdout=subprocess.PIPE, text=True) as main:
        assert main.stdout
        helper = int(main.stdout.readline())
        assert Path(f"/proc/{helper}").exists()
        main.kill()
    deadline = time.monotonic() + 10
    while running(helper) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(helper)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_helper_that_is_stuck_is_said(crewed: tuple[Config, Any, Any, Crew], capfd: pytest.CaptureFixture[str]) -> None:
    mate = crewed[3]._mates[0]
    assert mate.process.pid is not None
    os.kill(mate.process.pid, signal.SIGSTOP)
    waiting = threading.Thread(target=mate.wait, args=("a gradient",), kwargs={"every": 0.05}, daemon=True)
    waiting.start()
    said = ""
    for _ in range(200):
        said += capfd.readouterr().err
        if "agentgym-helper-1 has worked on a gradient for 0.1 s and is alive" in said:
            break
        time.sleep(0.02)
    else:
        raise AssertionError(said)
    os.kill(mate.process.pid, signal.SIGKILL)
    waiting.join(10)
    assert not waiting.is_alive()
    with pytest.raises(PolicyError, match="died"):
        mate.receive()


SCRIPT = """
import sys
import agentgym
from agentgym import config
from agentgym.envs.toy import toy

class mine(toy):
    def step(self, action):
        return super().step(action)

if __name__ == "__main__":
    from agentgym.trainers.train import train
    agentgym.register("mine", mine)
    train(config.load([sys.argv[1]], ["env.name=mine", "run.workers=2", "run.dir=out"]))
"""


def test_an_environment_that_a_script_registered_plays_in_the_helpers_too(toy_layer: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_layer), "utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")
    command = [sys.executable, "script.py", "toy.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["eval"]["final"]["errors"] == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["env"]["name"] == "mine"
