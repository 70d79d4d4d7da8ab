"""The whole held-out set, by an endpoint that replays conversations, killed and gone on with. Only with AGENTGYM_HELD_OUT=1: three minutes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.envs.swe import env as swe_env
from agentgym.envs.swe import oracle
from agentgym.envs.swe.packages import PACKAGES, fetch
from agentgym.envs.swe.sandbox import TREE, Backend
from agentgym.envs.swe.task import SweTask
from agentgym.errors import DataError
from agentgym.store import read_lines

pytestmark = [
    pytest.mark.skipif(os.environ.get("AGENTGYM_HELD_OUT") != "1", reason="128 episodes take three minutes: set AGENTGYM_HELD_OUT=1"),
    pytest.mark.timeout(3000),
]
ROOT = Path(agentgym.__file__).resolve().parents[1]
TURNS, KILLED_AT = 6, 40
HELD_OUT = {"python-slugify", "semver", "sqlparse", "xmltodict"}
LOOK = f"First I look around.\n\n```bash\ncd {TREE} && git log --oneline && ls\n```"
SUBMIT = "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"


def block(patch: str) -> str:
    return f"```bash\n{oracle._patch(patch, TREE)}\n```"


def conversation(number: int, task: SweTask, other: SweTask) -> tuple[str, list[str]]:
    """Return what becomes of an episode, and what the model says in it: every third repairs; some do nothing, some mistake the bug, some run out."""
    repair = [LOOK, "I know what is wrong.", block(task.patch)]
    return {
        0: ("resolved", [*repair, SUBMIT]),
        1: ("no_change", [LOOK, SUBMIT]),
        2: ("not_submitted", repair),
        3: ("resolved", [*repair, "```bash\ngit diff --stat\n```", SUBMIT]),
        4: ("failing", [LOOK, block(other.patch), "```bash\necho '# a comment' >> $(git ls-files '*.py' | grep -v test | head -n 1)\n```", SUBMIT]),
        5: ("resolved", [block(task.patch), SUBMIT]),
    }[number % 6]


@pytest.fixture
def sources() -> None:
    """The held-out packages' sources, from the cache or from the index that pip uses."""
    try:
        for name in HELD_OUT:
            fetch(PACKAGES[name])
    except DataError as e:
        pytest.skip(f"the held-out set is not evaluated by an endpoint: {e}")


def test_an_endpoint_on_the_whole_held_out_set(sources: None, endpoint: Any, grading: Backend, machine: Any, tmp_path: Path) -> None:
    held_out = sorted(swe_env._tasks("generated", None, None, "test")[1].values(), key=lambda t: t.id)
    assert len(held_out) == len({t.problem.strip() for t in held_out}) == 128
    expected = {}
    for i, task in enumerate(held_out):
        cause, endpoint.conversations[task.problem.strip()] = conversation(i, task, held_out[i - 1])
        expected[task.id] = cause
    folder = tmp_path / "r"
    episodes = folder / "episodes.jsonl"
    command = [sys.executable, "-m", "agentgym", "eval", endpoint.address, str(ROOT / "tasks" / "swe_chat.yaml"), f"env.sandbox={grading.name}"]
    command += ["--model", "recorded", "--out", str(folder), f"env.max_steps={TURNS}", "rollout.concurrency=4"]

    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not episodes.exists() or len(list(read_lines(episodes))) < KILLED_AT:
        assert first.poll() is None, "it ended before it was killed"
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.wait(30)
    done = {row["task"]: row for row in list(read_lines(episodes))}
    endpoint.asked.clear()

    second = subprocess.run(command, capture_output=True, text=True, timeout=2400)
    assert second.returncode == 0, second.stderr[-3000:]
    rows = {row["task"]: row for row in list(read_lines(episodes))}
    found = {name.rpartition("/")[2]: row.get("cause") or "resolved" for name, row in rows.items()}
    assert found == expected
    assert all(rows[name] == row for name, row in done.items()), "what was finished stays"
    finished = [t.problem.strip() for t in held_out if any(name.endswith(t.id) for name in done)]
    assert not [m for m in endpoint.asked if any(p in m[0]["content"] for p in finished)], "and is not played again"

    report = json.loads((folder / "results.json").read_text("utf-8"))
    causes = Counter(expected.values())
    assert (report["n"], report["errors"], report["success"]) == (128, 0, causes.pop("resolved") / 128)
    assert report["causes"] == dict(causes) and report["low"] < report["success"] < report["high"]
    assert set(report["types"]) == HELD_OUT
    for name in (*report["types"], *causes):
        assert name in second.stdout
    assert machine.eventually(lambda: not machine.left_of(first.pid), 30), machine.left_of(first.pid)
