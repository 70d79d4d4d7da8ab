"""The command line: what is wrong is said in words, with an exit code, without a traceback; Ctrl-C loses nothing."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers  # noqa: F401  (its log handler keeps the stderr of its first import: that of one test would be closed in the next)
import yaml

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run) -> Run:
    """Run a command in this process, in an empty folder; return (exit code, stdout, stderr)."""
    return command


@pytest.fixture
def task(toy_layer: dict[str, Any], tmp_path: Path) -> str:
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_layer), "utf-8")
    return "toy.yaml"


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys, time; t = time.process_time()\n"
        "sys.argv = ['agentgym', '--help']\n"
        "from agentgym.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code\n"
        "heavy = [m for m in ('torch', 'transformers', 'numpy', 'gymnasium', 'omegaconf', 'pydantic', 'rich.console') if m in sys.modules]\n"
        "print('HEAVY', [m for m in heavy if m in ('torch', 'transformers', 'omegaconf', 'pydantic')], time.process_time() - t)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    found = re.search(r"HEAVY (\[.*\]) ([\d.]+)", out)
    assert found and found[1] == "[]" and float(found[2]) < 2  # the goal is 0.5 s; this machine may be busy
    assert all(f"  {c} " in out for c in ("run", "resume", "eval", "compare", "check", "play", "init", "serve", "list"))


@pytest.mark.parametrize(
    "args, code, message",
    [
        (["rum"], 2, r"error: there is no command 'rum'\. Did you mean 'run'.*Commands: run, resume, eval, .*See `agentgym --help`"),
        (["run"], 2, r"error: Missing argument 'TASK\.yaml.*See `agentgym run --help`"),
        (["run", "a=b"], 1, r"error: which task set\? For example: agentgym run tasks/alfworld\.yaml"),
        (["run", "toy.yaml", "--workers"], 2, r"error: No such option: --workers\. See `agentgym run --help`"),
        (["run", "to.yaml"], 1, r"error: there is no file 'to\.yaml', .*Did you mean 'toy\.yaml'.*Bundled tasks: alfworld"),
        (["run", "toy.yaml", "rolout.tasks=3"], 1, r"error: override 'rolout\.tasks=3': unknown key 'rolout'\. Did you mean 'rollout'"),
        (["run", "toy.yaml", "rollout.tasks=x"], 1, r"error: rollout\.tasks: got 'x' \(str\), expected int"),
        (["run", "toy.yaml", "run.dir=[a,"], 1, r"error: override 'run\.dir=\[a,'.*not valid YAML"),
        (["run", "toy.yaml", "run.dir=r", "stages.rl.credit.step_wait=1"], 1, r"has no option 'step_wait'\. Did you mean 'step_weight'"),
        (["run", "toy.yaml", "run.dir=r", "stages.rl.credit.step_weight=x"], 1, r"credit\.gigpo\.step_weight: got 'x' \(str\), expected float"),
        (["run", "toy.yaml", "run.dir=r", "stages.rl.credit=gigop"], 1, r"there is no credit named 'gigop'\. Did you mean 'gigpo'"),
        (["run", "toy.yaml", "run.dir=r", "env.sise=3"], 1, r"environment 'toy' has no option 'sise'\. Did you mean 'size'"),
        (["run", "toy.yaml", "run.dir=r", "env.name=toi"], 1, r"there is no env named 'toi'\. Did you mean 'toy'"),
        (["run", "toy.yaml", "run.dir=r", "splits.eval=tst"], 1, r"there is no split 'tst'\. Did you mean 'test'"),
        (["run", "toy.yaml", "run.dir=r", "splits.eval=train"], 1, r"9 held-out task\(s\) are also in the training split"),
        (["run", "toy.yaml", "run.dir=r", "model.hiden=3"], 1, r"model 'tiny' has no option 'hiden'\. Did you mean 'hidden'"),
        (["run", "toy.yaml", "run.dir=r", "model={name: ./nothere}"], 1, r"error: .*nothere"),
        (["run", "alfworld", "run.dir=r", "env.size=null", "env.data=/no/such/folder"], 1, r"error: .*/no/such/folder"),
        (["resume", "nothere"], 1, r"nothere holds no run \(no config\.json\); give the folder that `agentgym run` printed"),
        (["eval", "expert"], 2, r"error: Missing argument"),
        (["eval", "expert", "k=3"], 1, r"error: which task set\?"),
        (["eval", "expert", "toy.yaml", "--k", "0"], 1, r"error: --k is 0; it is at least 1"),
        (["eval", "expert", "toy.yaml", "--split", "tst"], 1, r"there is no split 'tst'\. Did you mean 'test'"),
        (["eval", "hf", "toy.yaml"], 1, r"the policy 'hf' needs a model"),
        (["eval", "./nothere", "toy.yaml"], 1, r"error: model '\./nothere': .*is no model folder"),
        (["eval", "runs/nothere", "toy.yaml"], 1, r"error: model 'runs/nothere': .*is no model folder"),
        (["eval", "http://localhost:1/v1", "toy.yaml"], 1, r"an endpoint serves models by name: say which one with --model NAME"),
        (["compare", "a", "b"], 1, r"error: a holds no evaluation"),
        (["list", "credits"], 1, r"there is no plug-in kind 'credits'\. Did you mean 'credit'"),
        (["check", "toy", "--oracle", "3"], 1, r"--oracle is for alfworld"),
        (["init"], 2, r"Usage: agentgym init"),
        (["init", "env", "a b"], 1, r"error: an environment's name has letters.*got 'a b'"),
        (["init", "evn", "a"], 2, r"error: No such command 'evn'"),
        (["play", "toi"], 1, r"no env named 'toi'\. Did you mean 'toy'"),
        (["play", "toy", "sise=3"], 1, r"no option 'sise'\. Did you mean 'size'"),
        (["play", "toy", "size"], 1, r"'size': an option of the environment is written name=value"),
        (["play", "toy", "size=[3,"], 1, r"override 'size=\[3,'.*not valid YAML"),
        (["play", "agentgym/Toi-v0"], 1, r"no env named 'Toi'"),
        (["play", "toy", "--task", "6:9-9-9"], 1, r"there is no task '6:9-9-9'"),
        (["serve", "search", "--corpus", "nothere.jsonl"], 1, r"error: .*nothere\.jsonl"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(run: Run, task: str, args: list[str], code: int, message: str) -> None:
    Path("runs").mkdir()
    got, _, err = run(*args)
    assert got == code, err
    assert re.search(message, err.replace("\n", " ")), err
    assert not Path("r/metrics.jsonl").exists()


def test_the_bare_command_shows_its_help(run: Run) -> None:
    code, _, err = run()
    assert code == 2 and err.startswith("Usage: agentgym") and "error" not in err


def test_list(run: Run) -> None:
    code, out, _ = run("list", "credit")
    assert code == 0 and "gigpo" in out and "GiGPO:" in out and "reward" not in out
    code, out, _ = run("list")
    assert code == 0 and all(k in out for k in ("env\n", "policy\n", "optimizer\n"))


def test_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("check", "toy")[0] == 0
    code, out, _ = run("check", "toi")
    assert code == 1 and "no env named 'toi'" in out


def test_run_eval_compare(run: Run, task: str, tmp_path: Path) -> None:
    code, out, err = run("run", task, "run.dir=first", "loggers.console={}")
    assert code == 0, err
    assert "final: held-out success" in out and "Everything is in first" in out
    code, _, err = run("run", task, "run.dir=first")
    assert code == 1 and "first already holds a run. Choose another run.dir, or go on with it: agentgym resume first" in err
    code, _, err = run("resume", "first")
    assert code == 1 and "the run in first is finished" in err

    last = "first/checkpoints/step-000004"
    for target, out_dir in (("first", "e1"), (last, "e2"), (f"{last}/model", "e3"), ("expert", "e4")):
        code, out, err = run("eval", target, task, "--k", "2", "--out", out_dir)
        assert code == 0, err
        assert "3 of 3 tasks, 2 episode(s) each" in out
    results = [json.loads(Path(d, "results.json").read_text()) for d in ("e1", "e2", "e3", "e4")]
    same = [{k: v for k, v in r.items() if "second" not in k and "wall" not in k} for r in results[:3]]
    assert same[0] == same[1] == same[2]
    code, out, _ = run("compare", "e1", "e2")
    assert code == 0 and out.strip()
    assert run("eval", "expert", task, "--tasks", "2")[1].count("2 of 3 tasks") == 1

    shutil.rmtree("first/checkpoints")
    Path("first/checkpoints").mkdir()
    code, _, err = run("eval", "first", task)
    assert code == 1 and "the run first has no checkpoint yet" in err


def test_a_checkpoint_of_another_architecture(run: Run, task: str, tmp_path: Path) -> None:
    import torch

    assert run("run", task, "run.dir=r", "stages.warm.update.count=1", "stages.rl.update.count=0")[0] == 0
    Path("r/summary.json").unlink()
    last = sorted(Path("r/checkpoints").glob("step-*"))[-1]
    config = json.loads((last / "model/config.json").read_text())
    model = last / "model"

    from safetensors.torch import load_file, save_file

    for kind, name in (("llama", "LlamaForCausalLM"), ("gpt2", "GPT2LMHeadModel")):
        (model / "config.json").write_text(json.dumps(config | {"architectures": [name], "model_type": kind}))
        code, _, err = run("eval", "r", task)  # transformers would make up what is missing, and only warn
        assert code == 1 and re.search(f"error: model .*: the weights are not those of a {name}, which its config.json asks for: ", err), err

    (model / "config.json").write_text(json.dumps(config))
    found = load_file(model / "model.safetensors")
    found["model.norm.weight"] = torch.ones(7)
    save_file(found, model / "model.safetensors", {"format": "pt"})
    code, _, err = run("resume", "r")
    assert code == 1 and "is damaged" in err
    code, _, err = run("eval", "r", task)
    assert code == 1 and err.startswith("error: "), err


def start(task: str, folder: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "agentgym.cli", "run", task, "run.dir=out", "stages.rl.update.count=500", *overrides]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_says_how_to_go_on_and_loses_nothing(run: Run, task: str, tmp_path: Path, workers: int) -> None:
    with start(task, tmp_path, f"run.workers={workers}") as process:
        try:
            while not list(tmp_path.glob("out/checkpoints/step-000003")):
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
            err = process.communicate(timeout=20)[1]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    lines = [x for x in err.splitlines() if "Writing model shards" not in x and x.strip()]
    assert lines == ["interrupted. Go on from the last checkpoint with: agentgym resume out"], err
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["run"]["workers"] == workers and not (tmp_path / "out" / "summary.json").exists()
    if workers == 1:
        done = max(int(p.name[-6:]) for p in tmp_path.glob("out/checkpoints/step-*"))
        config["run"]["minutes"] = 1e-6  # not part of the fingerprint: enough is enough
        (tmp_path / "out" / "config.json").write_text(json.dumps(config))
        code, _, err = run("resume", "out")
        assert code == 0, err
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["updates"] >= done


def test_a_full_disk(run: Run, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from agentgym.trainers import session

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    with monkeypatch.context() as m:
        m.setattr(session.store, "write", full)
        code, _, err = run("run", task, "run.dir=a")
    assert code == 1 and err.startswith("error: the disk is full (x). Free some space first.") and "agentgym resume a" in err
    assert run("resume", "a")[0] == 0


def test_a_person_plays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("frobnicate\n:help\n\n\n\n\n\n\n\n\n\n\n\n\n"))
    code, out, _ = run("play", "toy", "size=4", "split=test", "--seed", "3")
    assert code == 0 and "Nothing happens." in out and "the action was not accepted" in out and "Succeeded after" in out
    assert all(word in out for word in ("state", "actions", "go left", "reward", "seed 3"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("play", "toy", "--seed", "3")[0] == 0  # the end of the input ends the game
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "You are in the" in run("play", "agentgym/Toy-v0", "--seed", "3")[1]  # a Gymnasium id is a name too


def test_init_says_what_to_do_next(run: Run) -> None:
    code, out, _ = run("init", "env", "drawers")
    assert code == 0 and "agentgym check drawers/drawers.py:Drawers" in out and Path("drawers/test_drawers.py").is_file()


def test_list_shows_every_kind(run: Run) -> None:
    code, out, _ = run("list")
    assert code == 0 and all(f"  {name} " in out for name in ("searchqa", "alfworld", "hermes", "tags", "gigpo", "clip", "window", "hf"))
