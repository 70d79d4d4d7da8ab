"""Loggers: what they write, that they survive each other, and that the terminal is left as it was."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.logger import Loggers, Quiet
from agentgym.store import read_lines
from agentgym.trainers.logger.console import console
from agentgym.trainers.logger.jsonl import jsonl


class Keeps(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        self.said.append((stage, step, dict(metrics)))

    def text(self, message: str) -> None:
        self.said.append(message)

    def close(self) -> None:
        self.said.append("closed")


class Breaks(Quiet):
    """Its disk is full."""

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        raise OSError("no space left")

    def close(self) -> None:
        raise OSError("still none")


# ---- fan-out


def test_a_logger_that_fails_is_dropped_and_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    keeps = Keeps()
    loggers = Loggers({"breaks": Breaks(), "keeps": keeps})
    for step in (1, 2):
        loggers.log(step, {"x": 1.0}, stage="rl")
    loggers.rewind(1)  # neither has it
    loggers.close()
    assert [s for s in keeps.said if isinstance(s, tuple)] == [("rl", 1, {"x": 1.0}), ("rl", 2, {"x": 1.0})]
    assert [s for s in keeps.said if "no space left" in s and "'breaks'" in s] and keeps.said[-1] == "closed"
    assert loggers.names == ["keeps"] and capsys.readouterr() == ("", "")


def test_the_last_word_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = Loggers({"breaks": Breaks()})
    loggers.log(1, {}, stage="rl")
    loggers.log(2, {}, stage="rl")
    assert capsys.readouterr().err.count("no space left") == 1


@pytest.mark.parametrize("name", ["console", "jsonl", "tensorboard", "trackio", "wandb"])
def test_every_logger_is_found_by_its_name_and_refuses_unknown_options(name: str) -> None:
    assert name in registry.names("logger")
    with pytest.raises(ConfigError, match="no option 'colour'"):
        registry.bind("logger", name, {"colour": "red"})


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_missing_package_names_its_extra(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    with pytest.raises(ConfigError, match=rf"agentgym\[{name}\]"):
        registry.bind("logger", name)(tmp_path)


# ---- jsonl


def test_jsonl_rows(tmp_path: Path) -> None:
    log = jsonl(tmp_path / "run")
    log.log(1, {"loss": 0.1, "kl": math.nan}, stage="rl")
    log.text("held-out: 50 % ☃\ud800")
    (row,) = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert (row["stage"], row["step"], row["loss"], row["kl"]) == ("rl", 1, 0.1, None) and row["time"] > 1e9
    assert "50 % ☃\\ud800" in (tmp_path / "run" / "messages.log").read_text("utf-8")


def test_jsonl_goes_on_after_a_kill(tmp_path: Path) -> None:
    log = jsonl(tmp_path)
    for step in (1, 2, 3):
        log.log(step, {"x": step}, stage="warm" if step == 1 else "rl")
    log.path.write_bytes(log.path.read_bytes()[:-4])  # the last row is torn
    log = jsonl(tmp_path)
    assert [r["step"] for r in read_lines(log.path)] == [1, 2]
    log.rewind(1)
    log.log(2, {"x": 20}, stage="rl")
    assert [(r["step"], r["x"]) for r in read_lines(log.path)] == [(1, 1), (2, 20)]
    jsonl(tmp_path / "new").rewind(5)  # nothing there, nothing to do


# ---- console


def test_without_a_terminal_there_are_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = console(tmp_path, columns=2, every=0.05)
    log.text("run [bold]x[/bold] starts")
    log.log(3, {"success": 0.51234567, "loss": 1e-7, "hidden": 1}, stage="rl")
    log.progress("rollouts", 0, 40)
    time.sleep(0.06)
    log.progress("rollouts", 1, 40)
    log.progress("rollouts", 2, 40)  # too soon for another line
    time.sleep(0.06)
    log.progress("rollouts", 20, 40)
    log.progress("rollouts", 40, 40)
    log.close()
    log.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["run [bold]x[/bold] starts", "rl 3 | success 0.5123  loss 1e-07"]
    assert lines[2] == "rollouts 1/40 (2%)"  # too early for an estimate
    assert len(lines) == 4 and lines[3].startswith("rollouts 20/40 (50%), about 0 s left")


def test_the_metrics_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = registry.bind("logger", "console", {"metrics": ["loss", "absent"]})(tmp_path)
    log.log(3, {"success": 0.5, "loss": 0.25}, stage="rl")
    log.log(3, {"eval/success": 0.5}, stage="final")  # has none of them: no line
    assert capsys.readouterr().out == "rl 3 | loss 0.25\n"
    with pytest.raises(ConfigError, match="rows=0"):
        console(tmp_path, rows=0)


SCRIPT = """
import sys, time
from pathlib import Path
from agentgym.trainers.logger.console import console
log = console(Path("."))
log.text("hello [x] \\ud800")
log.log(1, {"success": 0.25}, stage="warm")
log.log(2, {"loss": 0.5, "success": 0.75}, stage="rl")
log.progress("rollouts", 3, 10)
time.sleep(0.3)
if sys.argv[1] == "close": log.progress("rollouts", 10, 10); log.close(); log.progress("late", 1, 2)
if sys.argv[1] == "raise": raise RuntimeError("a bug")
if sys.argv[1] == "wait": print("READY", flush=True); time.sleep(20)
"""


def in_terminal(how: str) -> str:
    """Run SCRIPT in a pseudo-terminal and return what it wrote there."""
    main, other = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, how], stdin=other, stdout=other, stderr=other, env=env)
    os.close(other)
    out, interrupted = b"", False
    while True:
        try:
            block = os.read(main, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
        if not block:
            break
        out += block
        if how == "wait" and b"READY" in out and not interrupted:
            process.send_signal(signal.SIGINT)
            interrupted = True
    process.wait(20)
    os.close(main)
    return out.decode("utf-8", "replace")


@pytest.mark.parametrize(("how", "said"), [("close", "rollouts"), ("raise", "RuntimeError: a bug"), ("wait", "KeyboardInterrupt")])
def test_the_terminal_is_given_back(how: str, said: str) -> None:
    out = in_terminal(how)
    assert said in out and "hello [x] \\ud800" in out and "0.75" in out and "3/10" in out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h") == 1  # the cursor: hidden once, back once
    assert "Exception ignored" not in out


# ---- trackers


def test_tensorboard_scalars_and_rewind(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    make = registry.bind("logger", "tensorboard", {"flush_s": 1})
    log = make(tmp_path)
    for step in (1, 2, 3):
        log.log(step, {"success": step / 10}, stage="rl")
    log.text("hello")
    log.close()
    again = make(tmp_path)
    again.rewind(1)
    again.log(2, {"success": 0.9}, stage="rl")
    again.close()
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, round(e.value, 3)) for e in events.Scalars("success")] == [(1, 0.1), (2, 0.9)]


TRACKIO = """
from pathlib import Path
from agentgym.trainers.logger.trackio import trackio
for steps in ((1, 2), (3,)):
    log = trackio(Path("run"), project="test")
    for step in steps: log.log(step, {"success": step / 10}, stage="rl")
    log.close(); log.close()
from trackio.sqlite_storage import SQLiteStorage
import json
print("RESULT", json.dumps([SQLiteStorage.get_runs("test"), [r["success"] for r in SQLiteStorage.get_logs("test", "run")]]))
"""


def test_trackio_goes_on_in_its_run(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    env = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", TRACKIO], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert "RESULT" in done.stdout, done.stdout + done.stderr
    runs, values = json.loads(done.stdout.split("RESULT ")[1].splitlines()[0])
    assert runs == ["run"] and values == [0.1, 0.2, 0.3]


def test_wandb_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    for step in (1, 2):
        log = registry.bind("logger", "wandb", {"mode": "offline", "project": "test"})(tmp_path)
        log.log(step, {"success": 0.5}, stage="rl")
        log.close()
        log.close()
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 2
    assert len({p.name.rpartition("-")[2] for p in (tmp_path / "wandb").glob("offline-run-*")}) == 1  # one id: one run
