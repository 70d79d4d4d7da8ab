"""The environment: episodes on both backends, its contract, what truncates, what fails, evaluation, and what a killed trainer leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import context
from agentgym.action import plain
from agentgym.envs.swe import diffs, oracle, repo
from agentgym.envs.swe import env as swe_env
from agentgym.envs.swe.env import SWEEnv
from agentgym.envs.swe.sandbox import TREE, Backend, SandboxMissing, owner
from agentgym.errors import ConfigError, DataError, EnvError
from agentgym.rollout import Agent, play
from agentgym.types import Sampling, Status, Task

ROOT = Path(agentgym.__file__).resolve().parents[1]
LIMITS = {"memory_mb": 512, "disk_mb": 64, "pids": 64}
MARK = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
FIX = "sed -i 's/result -= n/result += n/' tally/__init__.py"


@pytest.fixture(scope="module")
def rows(tally: Any) -> list[dict[str, Any]]:
    """Two tasks to train on, two that are held out: the first two bugs of the tiny package, each under two names."""
    good = (repo.pristine(repo.packages.package("tally")) / "tally/__init__.py").read_text("utf-8")
    bad = good.replace("/ len(numbers)", "/ (len(numbers) + 1)")
    files = ({"tally/__init__.py": good}, {"tally/__init__.py": bad})
    other = dataclasses.replace(
        tally,
        id="tally-2",
        base=dataclasses.replace(tally.base, bug=diffs.unified(*files)),
        patch=diffs.unified(files[1], files[0]),
        problem="`tally.mean` is off.",
        fail_to_pass=("tests/test_total.py::MeanTest::test_mean",),
        pass_to_pass=("tests/test_total.py::test_some",),
    )
    both = [tally, other]
    return [
        dataclasses.replace(t, id=f"{t.id}{'' if split == 'train' else '-' + split}", split=split).as_row()
        for split in ("train", "test")
        for t in both
    ]


@pytest.fixture(scope="module")
def tasks(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("tasks") / "tally.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(file)


Make = Callable[..., SWEEnv]


@pytest.fixture
def make(tasks: str, grading: Backend) -> Iterator[Make]:
    """Return a maker of environments over the tiny package's tasks; they are closed at the end."""
    made: list[SWEEnv] = []

    def make(**options: Any) -> SWEEnv:
        env = agentgym.make("swe", **{"tasks": tasks, "sandbox": grading.name, "limits": LIMITS, **options})
        made.append(env)  # type: ignore[arg-type]
        return made[-1]

    yield make
    for env in made:
        env.close()


def call(env: SWEEnv, name: str, /, **arguments: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
    return env.step(env.call_text(name, **arguments))


def played(env: SWEEnv, task: str, moves: Any = oracle.solve) -> tuple[float, dict[str, Any]]:
    """Play an episode by a script; return (reward, info)."""
    info = env.reset(seed=0, options={"task": task})[1]
    plan, total, done, said = moves(env), 0.0, False, None
    while not done:
        name, arguments = plan.send(said)
        _, reward, terminated, truncated, info = call(env, name, **arguments)
        said, total, done = "\n".join(env.results), total + reward, terminated or truncated
    return total, info


# --- episodes


def test_the_oracle_and_who_does_nothing(engine: Backend, make: Make, machine: Any) -> None:
    env = make(sandbox=engine.name)
    assert env.tasks() == ["tally-1", "tally-2"]
    for task in env.tasks():
        reward, info = played(env, task)
        assert (reward, info["success"], info["task_type"], info["grade"]["cause"]) == (1.0, True, "tally", "resolved"), info["grade"]
        assert (
            info["keep"] == {"grade": info["grade"], "cause": "resolved"}
            and info["rewards"] == {"tests": 1.0}
            and env.grade is not None
            and env.grade.seconds > 0
        )
    reward, info = played(env, "tally-1", oracle.idle)
    assert (reward, info["success"], info["grade"]["cause"]) == (0.0, False, "no_change")
    assert env._live is None, "between episodes nothing is open"
    assert machine.eventually(lambda: not machine.left_of(os.getpid())), "and nothing is left"


def test_what_the_agent_reads_first(make: Make) -> None:
    env = make(max_steps=7, max_seconds=90)
    observation, info = env.reset(seed=0, options={"task": "tally-1"})
    assert "<issue>\n`tally.total([1, 2])` gives -3; expected 3.\n</issue>" in observation and "up to 7 turns and 1.5 minutes" in observation
    assert [s.name for s in info["tools"]] == ["bash", "edit", "submit"] and info["valid"] and "grade" not in info
    assert "test_total" not in observation


def test_the_shell(make: Make) -> None:
    env = make(command_timeout=2.0, max_output=400)
    env.reset(seed=0, options={"task": "tally-1"})
    call(env, "bash", command="cd tally; export A=1; f() { echo f$1; }")
    assert call(env, "bash", command="pwd; echo $A; f 2; id -u")[0] == "<tool_response>\n/testbed/tally\n1\nf2\n1000\n</tool_response>"
    assert call(env, "bash", command="true")[0] == "<tool_response>\n(no output)\n</tool_response>"
    assert call(env, "bash", command="ls nothing 2>/dev/null")[0] == "<tool_response>\n(no output)\n[exit status 2]\n</tool_response>"
    said, *_, info = call(env, "bash", command="echo a; sleep 50")
    assert "no end after 2 s" in said and info["valid"]
    said = call(env, "bash", command="seq 100000")[0]
    assert "bytes left out here" in said and len(said) < 600 and "99999" in said


def test_both_tools_see_one_tree(make: Make) -> None:
    env = make()
    env.reset(seed=0, options={"task": "tally-1"})
    assert "8\t        result -= n" in call(env, "edit", command="view", path="tally/__init__.py", view_range=[4, 8])[0]
    call(env, "edit", command="create", path="x/y.txt", file_text="hi\n")
    assert "hi" in call(env, "bash", command="cat x/y.txt; echo more >> x/y.txt")[0]
    assert "2\tmore" in call(env, "edit", command="view", path="x/y.txt")[0]
    said, _, terminated, _, info = call(env, "edit", command="str_replace", path="x/y.txt", old_str="hello", new_str="x")
    assert "old_str is not in /testbed/x/y.txt" in said and not terminated and not info["valid"]
    said, *_, info = env.step('<tool_call>{"name": "edit", "arguments": {"command": "rewrite", "path": "x"}}</tool_call>')
    assert "edit: argument 'command': " in said and not info["valid"]
    for wrong in (
        {"command": "insert", "path": "x/y.txt", "new_str": "z"},
        {"command": "insert", "path": "x/y.txt", "new_str": "z", "insert_line": 9},
    ):
        assert not call(env, "edit", **wrong)[-1]["valid"]
    call(env, "edit", command="insert", path="x/y.txt", insert_line=0, new_str="top")
    assert "has 2 lines" in call(env, "edit", command="undo", path="x/y.txt")[0]


def test_partial_credit(make: Make) -> None:
    code = "def total(n):\n    return max(n, default=0)\ndef mean(n):\n    return 0\ndef label(n):\n    return f'<{n}>'\n"
    for partial, reward in ((True, 0.25), (False, 0.0)):
        env = make(partial=partial)
        env.reset(seed=0, options={"task": "tally-1"})
        call(env, "bash", command=f"cat > tally/__init__.py <<'E'\n{code}E")
        _, got, terminated, _, info = call(env, "submit")
        assert (got, terminated, info["success"], info["grade"]["fail_to_pass"]) == (reward, True, False, [1, 4])


# --- the protocol of mini-swe-agent


def test_only_bash(make: Make) -> None:
    env = make(format="bash_block")
    assert played(env, "tally-1")[0] == 1.0 and played(env, "tally-1", oracle.idle)[1]["grade"]["cause"] == "no_change"
    env.reset(seed=0, options={"task": "tally-1"})
    assert env.step("I think.")[0].startswith("There is no ```bash block")
    for command in (f"echo x; echo {MARK}", f"echo {MARK}; false", f"echo {MARK}2", f"cat <<< 'not {MARK}'"):
        _, _, terminated, truncated, info = env.step(f"```bash\n{command}\n```")
        assert not terminated and not truncated and info["valid"], command
    env.step(f"```bash\n{FIX}\n```")
    _, reward, terminated, _, _ = env.step(f"Done.\n```bash\necho; echo {MARK}; git diff\n```")
    assert (reward, terminated) == (1.0, True)


def test_the_marker_means_nothing_elsewhere(make: Make) -> None:
    env = make()
    env.reset(seed=0, options={"task": "tally-1"})
    assert call(env, "bash", command=f"echo {MARK}")[2:4] == (False, False)


@pytest.mark.parametrize("form", ["hermes", "openai", "plain", "tags"])
def test_the_oracle_in_every_format(form: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls go through each format; grading is the same for all, so it is left out here."""
    env = make(format=form)
    seen: list[Any] = []
    monkeypatch.setattr(swe_env.Grader, "grade", lambda self, task, found: seen.append(found) or swe_env.Grade.without_tests(task, "failing"))
    played(env, "tally-1")
    assert list(seen[0].files) == ["tally/__init__.py"] and b"result += n" in seen[0].files["tally/__init__.py"]


# --- the end without a submission


def test_the_step_limit(make: Make) -> None:
    env = make(max_steps=2)
    env.reset(seed=0, options={"task": "tally-1"})
    call(env, "bash", command=FIX)
    _, reward, terminated, truncated, info = call(env, "bash", command="ls")
    assert (reward, terminated, truncated, info["grade"]["cause"]) == (0.0, False, True, "not_submitted") and env._live is None
    with pytest.raises(EnvError, match="outside of an episode"):
        env.step("x")


def test_the_time_limit(make: Make) -> None:
    env = make(max_seconds=3.0, command_timeout=60)
    env.reset(seed=0, options={"task": "tally-1"})
    start = time.monotonic()
    _, reward, terminated, truncated, info = call(env, "bash", command="sleep 100")
    assert (reward, terminated, truncated, info["grade"]["cause"]) == (0.0, False, True, "not_submitted") and time.monotonic() - start < 30
    assert env.reset(seed=0, options={"task": "tally-2"})[1]["task_id"] == "tally-2"


# --- the state


def test_states_meet(make: Make) -> None:
    env = make()
    keys = []
    for commands in (["ls", FIX], ["python -c \"p='tally/__init__.py'; s=open(p).read(); open(p,'w').write(s.replace('-= n','+= n'))\""]):
        keys.append([env.reset(seed=0, options={"task": "tally-1"})[1]["state"]])
        keys[-1] += [call(env, "bash", command=c)[-1]["state"] for c in commands]
    assert keys[0][0] == keys[0][1] == keys[1][0] and keys[0][2] == keys[1][1] != keys[0][0]
    assert call(env, "edit", command="view", path="README.md")[-1]["state"] == keys[1][1]
    assert call(env, "submit")[-1]["state"] == keys[1][1]
    assert env.reset(seed=0, options={"task": "tally-2"})[1]["state"] not in (*keys[0], *keys[1])


def test_states_with_what_was_seen(make: Make) -> None:
    env = make(state="tree+observation")
    first = env.reset(seed=0, options={"task": "tally-1"})[1]["state"]
    seen = [call(env, "bash", command=c)[-1]["state"] for c in ("cat README.md", "cat tally/__init__.py", "head README.md")]
    assert seen[0] == seen[2] and len({first, *seen}) == 3


# --- what fails


def test_options_that_make_no_sense(tasks: str) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"sandbox": "dockr"}, "Did you mean 'docker'"),
        ({"state": "trees"}, "Did you mean 'tree'"),
        ({"limits": {"memory": 1}}, "Did you mean 'memory_mb'"),
        ({"limits": {"pids": 1}}, "sandbox limit pids=1"),
        ({"max_output": 10}, "sandbox limit output=10"),
        ({"max_seconds": 0}, "all are above 0"),
        ({"limit": 0}, "at least 1"),
        ({"packages": ["taly"]}, "no task is of 'taly'. Did you mean 'tally'"),
    ]
    for options, said in wrong:
        with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
            SWEEnv(tasks=tasks, **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has no tasks of split 'valid'"):
        SWEEnv(tasks=tasks, split="valid")


def test_which_tasks(tasks: str, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert SWEEnv(tasks=tasks, limit=1).tasks() == ["tally-1"] and SWEEnv(tasks=tasks, limit={"train": 1}, split="test").tasks() == [
        "tally-1-test",
        "tally-2-test",
    ]
    other = tmp_path / "mixed.jsonl"
    other.write_text(json.dumps(rows[0]) + "\n" + json.dumps({**rows[1], "repo": "django/django"}) + "\n", "utf-8")
    with pytest.warns(UserWarning, match="1 of 2 tasks .* are left out: Django's tests have a runner of their own"):
        assert SWEEnv(tasks=other).tasks() == ["tally-1"]


class Failing:
    """A backend that fails at a later opening."""

    name = "failing"

    def __init__(self, inner: Backend, good: int) -> None:
        self.inner, self.good = inner, good

    def open(self, *args: Any, **options: Any) -> Any:
        self.good -= 1
        if self.good < 0:
            raise EnvError("the engine is gone")
        return self.inner.open(*args, **options)


def agent(*actions: str) -> Agent:
    from agentgym.trainers.policy.scripted import scripted

    return Agent(scripted(actions=list(actions)), context.full, plain, Sampling())


@pytest.mark.parametrize("good", [0, 1])
def test_a_fault_of_the_sandbox_is_an_error_of_the_episode(good: int, make: Make, grading: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swe_env, "_backend", lambda name: backend)
    backend = Failing(grading, good)
    env = make(format="bash_block")
    acts = agent(f"```bash\n{FIX}\n```", f"```bash\necho {MARK}\n```")
    out = asyncio.run(play(acts, env, Task("tally-1", "swe", "train"), group="g", seed=0))
    assert out.status is Status.ERROR and out.error == "EnvError: the engine is gone"
    backend.good = 2
    out = asyncio.run(play(acts, env, Task("tally-1", "swe", "train"), group="g", seed=0))
    assert out.status is Status.TERMINATED and out.outcome == 1.0 and out.steps[-1].info["grade"]["cause"] == "resolved", (
        "the next episode is not hurt"
    )


def test_no_backend(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("PATH", "/nowhere")
    swe_env._backend.cache_clear()
    env = make(sandbox="auto")
    try:
        with pytest.raises(SandboxMissing, match=r"(?s)docker: .*apt-get install.*bubblewrap: .*apt-get install"):
            env.reset(seed=0)
    finally:
        swe_env._backend.cache_clear()


def test_closing_while_a_command_runs(make: Make, machine: Any) -> None:
    env = make(command_timeout=300)
    env.reset(seed=0, options={"task": "tally-1"})
    failed: list[BaseException] = []

    def work() -> None:
        try:
            call(env, "bash", command="sleep 300")
        except EnvError as e:
            failed.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    env.close()
    env.close()
    thread.join(30)
    assert failed and not thread.is_alive() and machine.eventually(lambda: not machine.left_of(os.getpid()))


def test_closing_while_the_sandbox_opens(make: Make, grading: Backend, monkeypatch: pytest.MonkeyPatch, machine: Any) -> None:
    opened = threading.Event()
    closed = threading.Event()

    class Slow(Failing):
        def open(self, *args: Any, **options: Any) -> Any:
            box = super().open(*args, **options)
            opened.set()
            closed.wait(30)
            return box

    monkeypatch.setattr(swe_env, "_backend", lambda name: Slow(grading, 9))
    env = make()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            env.reset(seed=0)
        except EnvError as e:
            failed.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    assert opened.wait(60)
    env.close()
    closed.set()
    thread.join(60)
    assert failed and "closed while" in str(failed[0]) and machine.eventually(lambda: not machine.left_of(os.getpid()))


@pytest.mark.parametrize("form", ["plain", "bash_block"])
def test_without_a_sandbox(form: str, make: Make) -> None:
    """Who says so gets a copy on this machine: the prompt, the tools, the key and the grading all name that place."""
    swe_env._backend.cache_clear()
    with pytest.warns(UserWarning, match="run as you"):
        env = make(sandbox="none", format=form)
        text, info = env.reset(seed=0, options={"task": "tally-1"})
    root = Path(env.root)
    assert str(root) != TREE and "The repository of tally in the current folder has" in text and (root / "tally").is_dir()
    reward, last = played(env, "tally-1")
    assert reward == 1.0 and last["state"] != info["state"] and not root.exists()
    swe_env._backend.cache_clear()


def test_it_travels(make: Make) -> None:
    env = make()
    env.reset(seed=0, options={"task": "tally-1"})
    copied = pickle.loads(pickle.dumps(env))
    with pytest.raises(EnvError):
        copied.step("x")
    assert played(copied, "tally-1", oracle.idle)[1]["grade"]["cause"] == "no_change"
    assert "tally" in call(env, "bash", command="ls")[0], "the first one goes on"
    copied.close()


@pytest.mark.slow
def test_the_contract(tasks: str) -> None:
    """On the backend `none`, which is the quickest to open: the contract asks for many episodes."""
    swe_env._backend.cache_clear()
    with pytest.warns(UserWarning, match="run as you"):
        swe_env._backend("none")
    problems = agentgym.check_env(lambda: agentgym.make("swe", tasks=tasks, sandbox="none", max_steps=3), episodes=2, limit=120.0)
    swe_env._backend.cache_clear()
    assert not problems, "\n".join(map(str, problems))


# --- evaluation


def config_of(tasks: str, name: str, grading: Backend) -> list[str]:
    return [
        str(ROOT / "tasks" / name),
        f"env.tasks={tasks}",
        "env.packages=null",
        f"env.sandbox={grading.name}",
        "env.limits={memory_mb: 512, disk_mb: 64}",
    ]


def test_evaluate_the_expert(command: Callable[..., tuple[int, str, str]], tasks: str, grading: Backend, tmp_path: Path) -> None:
    code, out, err = command("eval", "expert", *config_of(tasks, "swe_chat.yaml", grading), "--out", str(tmp_path / "r"))
    assert code == 0, err
    report = json.loads((tmp_path / "r" / "results.json").read_text("utf-8"))
    assert (report["n"], report["success"], report["errors"]) == (2, 1.0, 0) and list(report["types"]) == ["tally"] and "tally" in out


CONVERSATION = [
    "I look at the code first.\n\n```bash\ncat tally/__init__.py; ls tests\n```",
    "The sign is wrong. I repair it.",
    f"```bash\n{FIX} && git diff --stat\n```",
    "```bash\npython -m pytest -q tests && python -c 'import tally; print(tally.total([1, 2]))'\n```",
    f"It works.\n\n```bash\necho {MARK}\n```",
]


@pytest.fixture
def stub(endpoint: Any) -> Any:
    endpoint.conversations[""] = CONVERSATION
    return endpoint


def test_evaluate_an_endpoint(command: Callable[..., tuple[int, str, str]], stub: Any, tasks: str, grading: Backend, tmp_path: Path) -> None:
    options = ["--model", "recorded", "--out", str(tmp_path / "r"), "env.max_steps=7"]
    code, _, err = command("eval", stub.address, *config_of(tasks, "swe_chat.yaml", grading), *options)
    assert code == 0, err
    lines = [json.loads(line) for line in (tmp_path / "r" / "episodes.jsonl").read_text("utf-8").splitlines()]
    by_task = {line["task"].rpartition("/")[2]: line for line in lines}
    assert by_task["tally-1-test"]["success"] and by_task["tally-1-test"]["steps"] == 5 and by_task["tally-1-test"]["invalid"] == 1
    assert not by_task["tally-2-test"]["success"], "the recorded repair is of the other fault"
    assert json.loads((tmp_path / "r" / "results.json").read_text("utf-8"))["causes"] == {by_task["tally-2-test"]["cause"]: 1}
    last = max((m for m in stub.asked if "gives -3" in m[0]["content"]), key=len)
    assert (
        "result -= n" in last[2]["content"] and last[4]["content"].startswith("There is no ```bash block") and "1 file changed" in last[6]["content"]
    )
    assert "1 passed" in last[8]["content"] and last[8]["content"].rstrip().endswith("3")


DRIVER = """
import dataclasses, json, sys
from agentgym.envs.swe import packages
packages.PACKAGES["tally"] = packages.Package("tally", "1.0", json.loads(sys.argv.pop(1)), "MIT", ("tally",))
from agentgym.cli import main
main()
"""


def started(tally: Any, *args: str) -> subprocess.Popen[bytes]:
    """Start an agentgym command in a process of its own, which knows the tiny package."""
    command = [sys.executable, "-c", DRIVER, json.dumps(tally.base.sha256), *args]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True)


def killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    if process.stderr:
        process.stderr.close()


def test_an_evaluation_goes_on_after_a_kill(
    command: Callable[..., tuple[int, str, str]], stub: Any, tasks: str, tally: Any, grading: Backend, tmp_path: Path, machine: Any
) -> None:
    args = [
        "eval",
        stub.address,
        *config_of(tasks, "swe_chat.yaml", grading),
        "--model",
        "recorded",
        "--out",
        str(tmp_path / "r"),
        "env.max_steps=6",
        "rollout.concurrency=1",
    ]
    stub.hold = "`tally.mean` is off", 2
    process = started(tally, *args)
    try:
        assert stub.held.wait(120), process.stderr and process.stderr.read()
        assert machine.left_of(process.pid), "it is in the middle of an episode"
    finally:
        killed(process)
    done = (tmp_path / "r" / "episodes.jsonl").read_text("utf-8").splitlines()
    assert len(done) == 1 and json.loads(done[0])["success"]
    stub.hold, before = None, len(stub.asked)
    code, _, err = command(*args)
    assert code == 0, err
    report = json.loads((tmp_path / "r" / "results.json").read_text("utf-8"))
    assert (report["n"], report["success"], report["errors"]) == (2, 0.5, 0)
    assert not [m for m in stub.asked[before:] if "gives -3" in m[0]["content"]], "what was finished is not played again"
    owner.reap()
    assert machine.eventually(lambda: not machine.left_of(process.pid)), machine.left_of(process.pid)


EPISODES = """
import json, sys, threading
from agentgym.envs.swe import packages
packages.PACKAGES["tally"] = packages.Package("tally", "1.0", json.loads(sys.argv[1]), "MIT", ("tally",))
from agentgym.envs.swe.env import SWEEnv

def play():
    env = SWEEnv(tasks=sys.argv[2], sandbox=sys.argv[3], limits={"memory_mb": 512, "disk_mb": 64}, format="bash_block", command_timeout=400)
    env.reset(seed=0)
    env.step("```bash\\nsleep 500 & sleep " + sys.argv[4] + "\\n```")

for _ in range(8):
    threading.Thread(target=play).start()
"""


def test_a_killed_trainer_leaves_nothing(engine: Backend, tasks: str, tally: Any, machine: Any) -> None:
    """kill -9 in the middle of eight episodes: the next start removes what is left of them."""
    number = f"501.{os.getpid()}"  # seconds that nobody else on this machine sleeps
    command = [sys.executable, "-c", EPISODES, json.dumps(tally.base.sha256), tasks, engine.name, number]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    try:
        up = machine.eventually(lambda: process.poll() is not None or len(machine.processes(f"sleep\x00{number}")) >= 8, 200.0)
        assert up and process.poll() is None, process.stderr and process.stderr.read()
        assert len([x for x in machine.left_of(process.pid) if x.startswith("folder")]) >= 8
    finally:
        killed(process)
    owner.reap()
    assert machine.eventually(lambda: not machine.left_of(process.pid), 30.0), machine.left_of(process.pid)
    assert machine.eventually(lambda: not machine.processes(f"sleep\x00{number}"))


# --- training


@pytest.mark.slow
def test_a_real_update(tasks: str, grading: Backend, tmp_path: Path) -> None:
    """tasks/swe.yaml with smaller numbers: a warm start on the oracle, then an update of GiGPO on real sandboxes."""
    from agentgym.config import load
    from agentgym.store import read_lines
    from agentgym.trainers.train import train

    model = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.ffn=64", "model.vocab=400"]
    rollout = ["env.max_steps=3", "env.limit=null", "rollout.tasks=2", "rollout.group_size=2", "rollout.max_tokens=48", "stages.warm.rollout.tasks=2"]
    smaller = [
        *model,
        *rollout,
        "update.count=1",
        "stages.warm.update.count=2",
        "rollout.invalid_penalty=0.1",
        f"run.dir={tmp_path / 'run'}",
        "run.threads=1",
    ]
    files, *overrides = config_of(tasks, "swe.yaml", grading)
    summary = train(load([files], [*overrides, *smaller]))
    assert summary["updates"] == 3
    rows = [r for r in read_lines(tmp_path / "run" / "metrics.jsonl") if "loss" in r]
    assert len(rows) == 3 and all(r["skipped"] == 0 and r["grad_norm"] > 0 for r in rows)
