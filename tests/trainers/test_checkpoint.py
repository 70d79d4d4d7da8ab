"""Checkpoints: whole or not there, verified, kept and cleaned up; kill -9 and full disks included."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from agentgym.errors import CheckpointError
from agentgym.trainers.checkpoint import Checkpoints, load, newest, write_json


def model_saver(content: str = "weights"):
    def save(folder: Path) -> None:
        folder.mkdir()
        (folder / "model.bin").write_text(content)

    return save


def listing(root: Path) -> list[str]:
    return sorted(p.name for p in root.iterdir() if p.name != ".lock")


def test_round_trip_with_random_generators(tmp_path):
    c = Checkpoints(tmp_path, fingerprint="abc")
    state = {"counters": {"update": 3}, "optimizer": {"state": {0: {"exp_avg": torch.arange(3.0)}}, "betas": (0.9, 0.95)}, "none": None}
    c.save(3, model_saver("w3"), state)
    draws = (random.random(), np.random.rand(), torch.rand(1).item())
    folder, found = Checkpoints(tmp_path, fingerprint="abc").load_latest()
    assert folder.name == "step-000003" and (folder / "model" / "model.bin").read_text() == "w3"
    assert found["counters"] == state["counters"] and torch.equal(found["optimizer"]["state"][0]["exp_avg"], torch.arange(3.0))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == draws
    meta = json.loads((folder / "meta.json").read_text())
    assert set(meta["files"]) == {"model/model.bin", "trainer.pt"} and meta["step"] == 3 and "torch" in meta["versions"]


def test_keeps_the_last_and_the_best(tmp_path):
    c = Checkpoints(tmp_path, keep_last=2)
    for i in range(1, 6):
        c.save(i, model_saver(), {"i": i})
        if i in (2, 4):
            c.save(i, model_saver(), {"i": i}, best=True)
    assert listing(tmp_path) == ["best-000004", "step-000004", "step-000005"]
    assert c.latest().name == "step-000005" and c.best().name == "best-000004" and newest(tmp_path / "nowhere") is None


def test_saving_a_step_again_replaces_it(tmp_path):
    c = Checkpoints(tmp_path)
    c.save(1, model_saver("old"), {"a": 1})
    c.save(1, model_saver("new"), {"a": 2})
    assert listing(tmp_path) == ["step-000001"] and load(c.latest())["state"] == {"a": 2}
    assert c.load_latest(restore_rng=False)[1] == {"a": 2} and Checkpoints(tmp_path / "empty").load_latest() is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "model/model.bin").write_text("WEIGHTS"), "model.bin is damaged"),
        (lambda f: (f / "trainer.pt").unlink(), "trainer.pt is missing"),
        (lambda f: (f / "meta.json").write_text("{"), "is no checkpoint"),
    ],
)
def test_damage_is_found(tmp_path, damage, says):
    c = Checkpoints(tmp_path)
    c.save(1, model_saver(), {})
    damage(c.latest())
    with pytest.raises(CheckpointError, match=says):
        c.load_latest()


def test_another_configuration_is_refused(tmp_path):
    Checkpoints(tmp_path, fingerprint="old").save(1, model_saver(), {})
    with pytest.raises(CheckpointError, match=r"another configuration.*old, now new"):
        Checkpoints(tmp_path, fingerprint="new").load_latest()


def test_what_cannot_be_loaded_is_refused_when_saving(tmp_path):
    with pytest.raises(CheckpointError, match=r"state\['sampler'\]\[1\] is a PosixPath"):
        Checkpoints(tmp_path).save(1, model_saver(), {"sampler": [1, Path("x")]})


def test_a_full_disk_leaves_the_previous_one(tmp_path):
    c = Checkpoints(tmp_path)
    c.save(1, model_saver(), {})

    def full(folder: Path) -> None:
        folder.mkdir()
        with open("/dev/full", "w") as f:
            f.write("x" * 10_000)

    with pytest.raises(CheckpointError, match=r"No space left on device.*last: step-000001.*[Ff]ree some space"):
        c.save(2, full, {})
    assert listing(tmp_path) == ["step-000001"] and c.load_latest()[0].name == "step-000001"


def test_a_write_that_fails_inside_torch_leaves_the_previous_one(tmp_path):
    import resource

    c = Checkpoints(tmp_path)
    c.save(1, model_saver(), {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match="could not be written"):
            c.save(2, model_saver(), {"big": torch.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert listing(tmp_path) == ["step-000001"] and c.load_latest()[0].name == "step-000001"


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    def interrupted(folder: Path) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Checkpoints(tmp_path).save(1, interrupted, {})
    assert listing(tmp_path) == []


def test_a_replaced_checkpoint_comes_back_when_its_writer_died_in_between(tmp_path):
    c = Checkpoints(tmp_path)
    folder = c.save(1, model_saver("old"), {"a": 1})
    folder.rename(tmp_path / "step-000001.old-999")
    (tmp_path / "step-000001.tmp-999").mkdir()
    assert Checkpoints(tmp_path).load_latest()[1] == {"a": 1} and listing(tmp_path) == ["step-000001"]


def test_write_json_leaves_no_half_file(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1} and listing(tmp_path) == ["a.json"]


WRITER = """
import sys
from pathlib import Path
import torch
from agentgym.trainers.checkpoint import Checkpoints

def save_model(folder, i):
    folder.mkdir()
    for part in range(20):
        (folder / f"part-{part}").write_text(str(i) * 2000)

c = Checkpoints(Path(sys.argv[1]))
found = c.load_latest()
i = found[1]["i"] if found else 0
while True:
    i += 1
    c.save(i, lambda folder: save_model(folder, i), {"i": i, "t": torch.full((50_000,), float(i))})
    print("saved", flush=True)
"""


def test_killed_at_any_moment(tmp_path):
    """kill -9 while saving, again and again: what is there is whole, and the next writer goes on from it."""
    rng = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ)
        assert process.stdout.readline() == b"saved\n"
        with pytest.raises(CheckpointError, match="another process"):
            Checkpoints(tmp_path)
        time.sleep(0.05 + rng.random() * 0.4)
        process.kill()
        process.wait()
        process.stdout.close()
        for folder in tmp_path.glob("step-??????"):
            assert load(folder)["state"]["i"] == int(folder.name[-6:])
    c = Checkpoints(tmp_path)
    folder, state = c.load_latest(restore_rng=False)
    assert state["i"] >= 3 and state["t"][0] == state["i"] and (folder / "model/part-19").read_text() == str(state["i"]) * 2000
    assert [n for n in listing(tmp_path) if "." in n] == [] and len(listing(tmp_path)) <= 3
