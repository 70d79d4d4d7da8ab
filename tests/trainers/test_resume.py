"""A run that was killed goes on to the same numbers; what cannot go on is refused with the reason."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.config import Config
from agentgym.errors import CheckpointError
from agentgym.store import read_lines
from agentgym.trainers import forward, session
from agentgym.trainers.session import Session
from agentgym.trainers.train import resume, train

CLOCK = ("seconds", "wall_s", "time")


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not any(c in k for c in CLOCK)} for row in read_lines(folder / "metrics.jsonl")]


def everything(folder: Path) -> tuple[Any, ...]:
    """Return all that must not differ between a run in one go and one in pieces."""
    from safetensors.torch import load_file

    last = sorted((folder / "checkpoints").glob("step-*"))[-1]
    weights = {k: v.numpy().tobytes() for k, v in load_file(last / "model" / "model.safetensors").items()}
    state = torch.load(last / "trainer.pt", weights_only=True)["state"]["state"]
    episodes = {f.name: list(read_lines(f)) for f in sorted(folder.glob("*/*.jsonl.gz"))}
    summary = json.loads((folder / "summary.json").read_text())
    evals = {n: {k: v for k, v in e.items() if k not in CLOCK} for n, e in summary["eval"].items()}
    return last.name, weights, state["version"], state["stage"], metrics(folder), episodes, evals, summary["updates"]


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process and return its id. (A fork, since importing torch anew would take longer than the run.)"""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgrp()
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def longer(toy: Callable[..., Config], name: str, **run: Any) -> Config:
    layer = {"stages": {"warm": {"update": {"count": 3}}, "rl": {"update": {"count": 4}, "objectives": {"kl": {"coefficient": 0.1}}}}}
    return toy(layer, {"eval": {"every": 2, "tasks": 2}, "run": run}, name=name)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {}


def one_go(toy: Callable[..., Config], tmp_path: Path, straight: dict[str, Any]) -> tuple[Any, ...]:
    if "all" not in straight:
        config = longer(toy, "straight")
        train(config)
        straight["all"] = everything(tmp_path / "straight")
    return straight["all"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_any_moment_it_goes_on_to_the_same_numbers(toy: Callable[..., Config], tmp_path: Path, straight: dict[str, Any], seed: int) -> None:
    expected = one_go(toy, tmp_path, straight)
    rng = random.Random(seed)
    folder, kills, pieces = tmp_path / "pieces", 0, 0
    config = longer(toy, "pieces")
    while not (folder / "summary.json").exists():
        pieces += 1
        assert pieces < 60, "it does not get on"
        child = in_child((lambda: resume(folder)) if (folder / "config.json").exists() else (lambda: train(config)))
        # Short at first, so that a fast machine is not done before the first kill; then longer, so that a slow one gets on.
        deadline = time.monotonic() + rng.uniform(0.05, 0.3) * (1 + pieces / 4)
        while time.monotonic() < deadline:
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            time.sleep(0.005)
        else:
            os.kill(child, signal.SIGKILL)
            kills += wait(child) == -signal.SIGKILL
    assert kills, "nothing was killed"
    assert everything(folder) == expected


@pytest.mark.parametrize("stop, times", [("record", 4), ("evaluated", 3), ("evaluated", 4), ("maybe_save", 3), ("leave", 1), ("enter", 2)])
def test_killed_between_two_lines(toy: Callable[..., Config], tmp_path: Path, straight: dict[str, Any], stop: str, times: int) -> None:
    """Right after each thing that a session keeps, and at the first after the resume."""
    expected = one_go(toy, tmp_path, straight)
    config = longer(toy, "pieces")

    def dies_after(times: int, work: Callable[[], Any]) -> Callable[[], Any]:
        original, count = getattr(Session, stop), [0]

        def dying(self: Session, *args: Any, **kwargs: Any) -> Any:
            out = original(self, *args, **kwargs)
            count[0] += 1
            if count[0] == times:
                os.kill(os.getpid(), signal.SIGKILL)
            return out

        def run() -> None:
            setattr(Session, stop, dying)
            work()

        return run

    folder = tmp_path / "pieces"
    assert wait(in_child(dies_after(times, lambda: train(config)))) == -signal.SIGKILL
    assert wait(in_child(dies_after(1, lambda: resume(folder)))) == -signal.SIGKILL
    resume(folder)
    assert everything(folder) == expected


def test_at_most_the_current_update_is_lost(toy: Callable[..., Config], tmp_path: Path) -> None:
    config = longer(toy, "run")
    child = in_child(lambda: train(config))
    folder = tmp_path / "run"
    while not (folder / "checkpoints" / "step-000002").is_dir():
        assert not os.waitpid(child, os.WNOHANG)[0]
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    wait(child)
    logged = max(r["step"] for r in metrics(folder))
    with_checkpoint = int(sorted((folder / "checkpoints").glob("step-*"))[-1].name[-6:])
    assert with_checkpoint >= logged - 1
    assert resume(folder)["updates"] == 7


def test_checkpoints_further_apart(toy: Callable[..., Config], tmp_path: Path, straight: dict[str, Any]) -> None:
    expected = one_go(toy, tmp_path, straight)
    config = longer(toy, "sparse")
    config.checkpoint.every = 3
    original, count = Session.record, [0]

    def work() -> None:
        def dying(self: Session, *args: Any) -> None:
            original(self, *args)
            count[0] += 1
            if count[0] == 5:
                os.kill(os.getpid(), signal.SIGKILL)

        Session.record = dying  # type: ignore[method-assign]
        train(config)

    assert wait(in_child(work)) == -signal.SIGKILL
    resume(tmp_path / "sparse")
    assert everything(tmp_path / "sparse")[1:] == expected[1:]


def test_two_processes_go_on_with_the_reference_of_before(toy: Callable[..., Config], tmp_path: Path) -> None:
    """Its weights come from the disk then, and the helper must have them too: the numbers of one process in one go."""
    learning = {"policy": "expert", "credit": None, "objectives": {"clip": None, "cross_entropy": {}, "kl": {"coefficient": 0.1}}}
    layer = {"stages": {"warm": {"update": {"count": 1}}, "rl": {**learning, "update": {"count": 3}}}}
    train(toy(layer, name="straight"))

    def dying(self: Session, *args: Any) -> None:
        original(self, *args)
        if self.state.stage == 1 and self.state.update == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "_DEALT", 64)  # so that there is something to deal out
        original = Session.maybe_save
        patch.setattr(Session, "maybe_save", dying)
        with pytest.raises(KeyboardInterrupt):
            train(toy(layer, {"run": {"workers": 2}}, name="pieces"))
        patch.setattr(Session, "maybe_save", original)
        resume(tmp_path / "pieces")
    found, expected = ([r.get("loss/kl", 0.0) for r in metrics(tmp_path / n)] for n in ("pieces", "straight"))
    assert max(expected) > 1e-3 and found == pytest.approx(expected, rel=1e-3, abs=1e-6)


# ----------------------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def interrupted(toy: Callable[..., Config], tmp_path: Path) -> Path:
    """A run that stopped in its second stage."""
    config = toy()

    def fails(self: Session, *args: Any) -> None:
        if self.state.version == 3:
            raise KeyboardInterrupt
        original(self, *args)

    original = Session.record
    with pytest.MonkeyPatch.context() as m, pytest.raises(KeyboardInterrupt) as e:
        m.setattr(Session, "record", fails)
        train(config)
    assert e.value.__notes__ == [f"Go on from the last checkpoint with: agentgym resume {config.run.dir}"]
    return tmp_path / "run"


def test_another_configuration_is_refused(interrupted: Path) -> None:
    file = interrupted / "config.json"
    config = json.loads(file.read_text())
    before = (interrupted / "metrics.jsonl").read_bytes()
    config["stages"]["rl"]["credit"]["step_weight"] = 0.5
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"belongs to another configuration.*resume with the run's own configuration"):
        resume(interrupted)
    assert (interrupted / "metrics.jsonl").read_bytes() == before


def test_a_resumed_run_may_log_elsewhere(interrupted: Path) -> None:
    file = interrupted / "config.json"
    config = json.loads(file.read_text())
    config["checkpoint"]["every"] = 2
    file.write_text(json.dumps(config))
    assert resume(interrupted)["updates"] == 4


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no run \(no config\.json\); give the folder"):
        resume(tmp_path)


def test_a_damaged_checkpoint_is_named(interrupted: Path) -> None:
    last = sorted((interrupted / "checkpoints").glob("step-*"))[-1]
    data = bytearray((last / "model" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (last / "model" / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"is damaged.*Delete {last.name} to resume from the checkpoint before"):
        resume(interrupted)


def test_one_process_at_a_time(interrupted: Path) -> None:
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(interrupted / "checkpoints" / ".lock")], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout and other.stdout.readline() == b"held\n"
            with pytest.raises(CheckpointError, match="another process is writing checkpoints"):
                resume(interrupted)
        finally:
            other.kill()


# ---------------------------------------------------------------------------------------------------------------- full disk


def test_a_full_disk_is_said_and_costs_nothing(toy: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy()
    good = session.save_model
    saved: list[Path] = []

    def full(model: Any, tokenizer: Any, folder: Path, **kwargs: Any) -> Path:
        saved.append(folder)
        if len(saved) == 4:
            (Path(folder)).mkdir(parents=True)
            (Path(folder) / "half").write_bytes(b"x" * 100)
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return good(model, tokenizer, folder, **kwargs)

    monkeypatch.setattr(session, "save_model", full)
    with pytest.raises(CheckpointError, match=r"could not be written .*No space left.*MB free.*Earlier checkpoints are untouched \(last: step-") as e:
        train(config)
    assert "agentgym resume" in e.value.__notes__[0]
    folder = tmp_path / "run"
    assert not [p for p in (folder / "checkpoints").iterdir() if "tmp" in p.name]
    monkeypatch.undo()
    assert resume(folder)["updates"] == 4


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/shm"), reason="needs the right to mount a small file system")
def test_a_disk_that_is_really_full(toy: Callable[..., Config], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount")
    try:
        config = toy({"checkpoint": {"keep_last": 50}, "loggers": {"jsonl": None}, "run": {"trajectories_every": 0}})
        config.run.dir = str(small / "run")
        with pytest.raises(CheckpointError, match=r"could not be written.*Free some space, or lower checkpoint.keep_last, and resume"):
            train(config)
        kept = sorted(p.name for p in (small / "run" / "checkpoints").iterdir() if not p.name.startswith("."))
        assert kept and not [n for n in kept if "tmp" in n]
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        assert resume(small / "run")["updates"] == 4
    finally:
        gc.collect()  # the traceback of the failure holds torch's half-written file open
        subprocess.run(["umount", str(small)], check=True)
