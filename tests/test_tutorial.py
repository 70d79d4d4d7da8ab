"""envs/README.md, the page about your own environment, is true: its files are written and its commands run, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.scaffold import init_env

PAGE = (Path(__file__).parents[1] / "envs" / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.DOTALL)
SMALL = ["stages.warm.update.count=2", "update.count=1", "eval.show=1", "splits.eval=test", "rollout.group_size=2", "rollout.max_tokens=4"]


def call(folder: Path, line: str) -> str:
    words = shlex.split(line, comments=True)
    words[:1] = {"agentgym": [sys.executable, "-m", "agentgym.cli"], "python": [sys.executable]}[words[0]]
    if "run" in words and "run.dir=trained" in words:
        words += SMALL
    env = {**os.environ, "OMP_NUM_THREADS": "1", "AGENTGYM_CACHE": str(folder / "cache"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_every_block_of_the_page_works_in_order(tmp_path: Path) -> None:
    said: dict[str, str] = {}
    for language, text in BLOCKS:
        if language == "python":
            name = re.match(r"# (sums/\w+\.py)\n", text)
            assert name, f"a Python block of the page names no file:\n{text}"
            if name[1] == "sums/sums.py":  # the page shows what `init` wrote
                assert text == f"# sums/sums.py\n{(tmp_path / 'sums/sums.py').read_text('utf-8')}"
            (tmp_path / name[1]).write_text(text, "utf-8")
            continue
        for line in text.strip().splitlines():
            if "served.py" in line:
                pytest.importorskip("mcp")
            said[line] = call(tmp_path, line)
    assert len(said) == 9
    for line, output in said.items():
        if " check " in line:
            assert "keeps the contract" in output
        if " play " in line:
            assert "What is 3 + 4?" in output
        if "eval expert" in line:
            assert "100.0%" in output
    assert (tmp_path / "trained" / "summary.json").is_file() and (tmp_path / "trained" / "checkpoints").is_dir()


def test_the_environment_is_short() -> None:
    """A calculator with two tools takes at most 30 lines."""
    (block,) = [b for _, b in BLOCKS if "class Sums" in b]
    assert len([x for x in block.splitlines() if x.strip() and not x.strip().startswith("#")]) <= 30


def test_init_takes_any_sensible_name_and_overwrites_nothing(tmp_path: Path) -> None:
    from agentgym.errors import ConfigError

    files = init_env("my-Env2", tmp_path / "x")
    assert [f.name for f in files] == ["my_env2.py", "my_env2.jsonl", "my_env2.yaml", "test_my_env2.py"]
    assert "class MyEnv2(" in files[0].read_text() and "./my_env2.py:MyEnv2" in files[2].read_text()
    with pytest.raises(ConfigError, match="exists already; nothing was written"):
        init_env("my-Env2", tmp_path / "x")
    for bad in ("", "2x", "a b", "../x", "class"):
        with pytest.raises(ConfigError, match="an environment's name"):
            init_env(bad, tmp_path)
