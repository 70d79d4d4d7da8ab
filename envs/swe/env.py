"""SWE: an agent with a shell and an editor repairs a repository in a sandbox; hidden tests decide. Built on ToolEnv like anybody's own."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import agentgym
from agentgym.errors import ConfigError, EnvError, did_you_mean
from agentgym.task_file import Rows, read_rows
from agentgym.tools import ToolResult

from . import loaders, oracle, repo
from .changes import Files, changes, listed, listed_inside
from .grade import Grade, Grader
from .grade_bench import python_of, unsupported
from .packages import PACKAGES
from .sandbox import TREE, Backend, Limits, Sandbox, backend
from .sandbox.python import HOME
from .state import tree_key
from .task import SweTask
from .tools import Edit, Editor, needs

State = Literal["tree", "tree+observation"]
Name = Literal["auto", "docker", "bubblewrap", "none"]

PROMPT = """The repository of {repo} in {tree} has a fault:

<issue>
{problem}
</issue>

Repair it: change the source files so that this works as it should and all else works as before. Tests that you do not see decide. They run \
on the repository as it was given to you with your changes of its sources; changes of tests, of settings of pytest, of compiled files and links are \
left out. You have up to {steps} turns and {minutes:g} minutes, and there is no network. Hand in your work when you are done: without that it does \
not count."""


class SWEEnv(agentgym.ToolEnv):
    """Repositories with a fault: look around, repair, submit.

    tasks            None: the embedded generated set; else a file of rows (SWE-bench, SWE-Gym, SWE-smith, R2E-Gym; .jsonl, .json, .parquet) or
                     "hub:owner/name[:config]", see loaders.py
    packages         only tasks of these packages (or repositories)
    limit            only the first so many tasks of the split, or a map split → so many
    sandbox          docker | bubblewrap | auto: docker where an engine answers, else bubblewrap | none: commands run on this machine, as you
    limits           of a sandbox: memory_mb (2048), pids (256), cpus (1), disk_mb (1024)
    format           how calls stand in the text: hermes | openai | tags | plain; bash_block: only bash, in the protocol of mini-swe-agent
    max_steps        completions until the episode is truncated
    max_seconds      of an episode until it is truncated
    command_timeout  seconds of one command
    max_output       characters of one answer that the model sees; the middle of a longer one is left out
    test_timeout     seconds of processor time for one run of tests in grading; None: 60, for container images 1800
    partial          reward the share of FAIL_TO_PASS where all of PASS_TO_PASS pass; otherwise it is 1 or 0
    state            what info["state"] stands for. tree: the content of all files. tree+observation: also what the last calls gave, so that looking
                     at something else is another state

    The reward comes at `submit`. An episode that is truncated before has handed in nothing: 0, not graded. At the end info["grade"] says what grading
    found (see Grade in grade.py), and so does the last step of a stored trajectory. Where a sandbox fails, also in grading, EnvError is raised.
    """

    success_at = 1.0
    blocking = True

    def __init__(
        self,
        *,
        tasks: str | Path | None = None,
        split: str = "train",
        packages: Sequence[str] | None = None,
        limit: int | Mapping[str, int] | None = None,
        sandbox: Name = "auto",
        limits: Mapping[str, float] | None = None,
        format: str | Mapping[str, Any] = "hermes",
        max_steps: int = 50,
        max_seconds: float = 1800.0,
        command_timeout: float = 60.0,
        max_output: int = 10_000,
        test_timeout: float | None = None,
        partial: bool = False,
        state: State = "tree",
        instructions: bool | str = True,
    ) -> None:
        for name, value, allowed in (("sandbox", sandbox, get_args(Name)), ("state", state, get_args(State))):
            if value not in allowed:
                raise ConfigError(f"swe: {name} is {value!r}.{did_you_mean(str(value), allowed)} Allowed: {', '.join(allowed)}")
        if min(max_seconds, command_timeout, 1.0 if test_timeout is None else test_timeout) <= 0:
            raise ConfigError(f"swe: max_seconds={max_seconds}, command_timeout={command_timeout}, test_timeout={test_timeout}; all are above 0")
        limit = limit.get(split) if isinstance(limit, Mapping) else limit
        if limit is not None and limit < 1:
            raise ConfigError(f"swe: limit is {limit}; it is at least 1, or left out")
        self._asked = (str(tasks) if tasks is not None else "generated", tuple(packages) if packages is not None else None, limit)
        self.sandbox, self.partial, self.state = sandbox, partial, state
        self.max_seconds, self.command_timeout, self.test_timeout = max_seconds, command_timeout, test_timeout
        self.limits = _limits(limits or {}, max_output)
        self.grade: Grade | None = None
        self._epoch, self._guard = 0, threading.Lock()
        self._live: _Episode | None = None
        super().__init__(split=split, format=format, max_steps=max_steps, max_calls=8, instructions=instructions)

    # -- tools ----------------------------------------------------------------------------------------------------------------------------

    @agentgym.tool(timeout=None, limit=10**9)
    def bash(self, command: str) -> ToolResult:
        """Run a command in a bash that stays: working folder, variables and background jobs are kept for the next one.

        Args:
            command: one or more lines of bash; nothing can be typed while they run
        """
        live = self._episode()
        live.changed = True
        left = max(1.0, live.deadline - time.monotonic())
        done = live.box.shell(command, timeout=min(self.command_timeout, left))
        text = done.output.rstrip("\n") or "(no output)"
        if done.code not in (0, None):
            text += f"\n[exit status {done.code}]"
        marker = getattr(self._form, "submits", None)
        self.submitted = marker is not None and done.code == 0 and done.output.lstrip().split("\n")[0].strip() == marker
        return ToolResult(text, done=self.submitted)

    @agentgym.tool(timeout=None, limit=10**9)
    def edit(
        self,
        command: Edit,
        path: str,
        view_range: list[int] | None = None,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
    ) -> str:
        """View and edit files of the repository. view: a file with line numbers, or what is in a folder. create: a new file. str_replace: replace a
        text that stands in the file exactly once. insert: add lines. undo: take back the last change of this tool to a file.

        Args:
            command: what to do
            path: the file or folder, absolute or relative to the repository
            view_range: view only: first and last line, such as [10, 40]; last may be -1
            file_text: create only: the content of the file
            old_str: str_replace only: the text that is replaced, exactly as it stands in the file, without line numbers
            new_str: str_replace: what takes its place (nothing: it is removed); insert: the new lines
            insert_line: insert only: the line after which they are added; 0 is before the first
        """
        needs(command, view_range=view_range, file_text=file_text, old_str=old_str, new_str=new_str, insert_line=insert_line)
        live = self._episode()
        if command == "view":
            return live.editor.view(path, view_range)
        live.changed = True
        if command == "create":
            return live.editor.create(path, file_text or "")
        if command == "str_replace":
            return live.editor.replace(path, old_str or "", new_str or "")
        if command == "insert":
            return live.editor.insert(path, insert_line or 0, new_str or "")
        return live.editor.undo(path)

    @agentgym.tool(final=True, timeout=None)
    def submit(self) -> None:
        """Hand in the repository as it is now. This ends the episode."""
        self.submitted = True

    # -- the episode ----------------------------------------------------------------------------------------------------------------------

    def load_tasks(self, split: str) -> Rows:
        """Return the tasks of a split; read once per process."""
        return _tasks(*self._asked, split)[0]

    def setup(self, task: Mapping[str, Any]) -> str:
        """Open the sandbox with the repository, and begin with the issue."""
        self.close()
        self.swe = _tasks(*self._asked, self.split)[1][str(task["id"])]
        self.submitted, self.grade = False, None
        with self._guard:
            epoch = self._epoch
        box = repo.open_for_agent(self.swe, _backend(self.sandbox), self.limits)
        try:
            live = _Episode(box, self.swe, self.limits, time.monotonic() + self.max_seconds)
        except BaseException:
            box.close()
            raise
        with self._guard:
            stale = epoch != self._epoch
            if not stale:
                self._live = live
        if stale:
            live.close()
            raise EnvError("swe: the environment was closed while its sandbox was being opened")
        minutes = round(self.max_seconds / 60, 1)
        tree = TREE if box.tree == TREE else "the current folder"  # without isolation it has a name of chance
        return PROMPT.format(repo=self.swe.repo, tree=tree, problem=self.swe.problem.strip(), steps=self.max_steps, minutes=minutes)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out the calls of a completion; see ToolEnv. An episode whose time is over is truncated."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._running and time.monotonic() > self._episode().deadline:
            truncated, self._running = True, False
            reward += self._scored(None)
            info = self._info(info["valid"])
        return observation, reward, terminated, truncated, info

    def score(self) -> dict[str, float]:  # type: ignore[override]
        """Grade what was handed in, and close the sandbox."""
        live = self._episode()
        if self.submitted:
            grader = Grader(_backend(self.sandbox), self.limits, seconds=self.test_timeout, partial=self.partial)
            with self._guard:
                if self._live is not live:
                    raise EnvError("swe: the environment was closed before the grading")
                live.grader = grader
            self.state_key()
            self.grade = grader.grade(self.swe, changes(live.box, live.start, listed_inside(live.box, live.python, live.root), self.swe))
        else:
            self.grade = Grade.without_tests(self.swe, "not_submitted")
            self.state_key()
        self.close()
        return {"tests": self.grade.fraction if self.partial else float(self.grade.resolved), "success": float(self.grade.resolved)}

    def state_key(self) -> str:
        """Return the key of the work tree's content, and of the last observation where the option `state` says so."""
        live = self._live
        if live is not None and live.changed:
            self._tree, live.changed = tree_key(live.box, live.python), False
        seen = self.results if self.state == "tree+observation" else []
        return hashlib.sha256(json.dumps([self.task_id, self._tree, seen]).encode()).hexdigest()

    def demonstrate(self) -> Generator[tuple[str, dict[str, Any]], str, None]:
        """Repair it as the task's own fix does, by this environment's tools."""
        return oracle.solve(self)

    @property
    def root(self) -> str:
        """Return where the work tree is in the sandbox. Raises EnvError between episodes."""
        return self._episode().root

    def close(self) -> None:
        """Close the sandbox, also one that is just being opened or graded in."""
        with self._guard:
            self._epoch += 1
            live, self._live = self._live, None
        if live is not None:
            live.close()

    # -- inside ---------------------------------------------------------------------------------------------------------------------------

    def _episode(self) -> _Episode:
        if self._live is None:
            raise EnvError("swe: the sandbox of this episode is closed; call reset() first")
        return self._live

    def _info(self, valid: bool) -> dict[str, Any]:
        info = super()._info(valid)
        if self.grade is not None:
            grade = self.grade.as_info()
            info |= {"grade": grade, "keep": {"grade": grade, "cause": self.grade.cause}}
        return info

    def __getstate__(self) -> dict[str, Any]:
        """Leave the sandbox behind."""
        return {k: v for k, v in super().__getstate__().items() if k != "_guard"} | {"_live": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._guard = threading.Lock()


class _Episode:
    """What lives as long as an episode: its sandbox, and who looks after it.

    start    the files that the agent was given
    changed  whether something ran since the tree was hashed
    """

    def __init__(self, box: Sandbox, task: SweTask, limits: Limits, deadline: float) -> None:
        self.box, self.deadline, self.changed = box, deadline, True
        self.root = box.tree
        self.python = python_of(box) if task.image else sys.executable if self.root != TREE else f"{HOME}/bin/python3"
        self.start: Files = listed_inside(box, self.python, self.root) if task.image else listed(repo.agent_tree(task))
        self.editor = Editor(box, limits.output)
        self.grader: Grader | None = None

    def close(self) -> None:
        if self.grader is not None:
            self.grader.close()
        self.box.close()


def _limits(given: Mapping[str, float], output: int) -> Limits:
    allowed = ("memory_mb", "pids", "cpus", "disk_mb")
    for name in given:
        if name not in allowed:
            raise ConfigError(f"swe: limits has no {name!r}.{did_you_mean(name, allowed)} It has: {', '.join(allowed)}")
    return Limits(**given, output=output)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4)
def _backend(name: Name) -> Backend:
    """Return the backend of this process: one for all environments."""
    return backend(name)


@functools.lru_cache(maxsize=16)
def _tasks(name: str, packages: tuple[str, ...] | None, limit: int | None, split: str) -> tuple[Rows, dict[str, SweTask]]:
    """Return the rows of a split, and its tasks by id."""
    found = loaders.load(name, split=split)
    if packages is not None:
        known = sorted({t.repo for t in found} | (PACKAGES.keys() if name == "generated" else set()))  # a package may be of the other split
        for wanted in packages:
            if wanted not in known:
                raise ConfigError(f"swe: no task is of {wanted!r}.{did_you_mean(wanted, known)} There are: {', '.join(known)}")
        found = [t for t in found if t.repo in packages]
    why = Counter(reason for t in found if (reason := unsupported(t)))
    for reason, count in why.items():
        warnings.warn(f"swe: {count} of {len(found)} tasks of {name} ({split}) are left out: {reason}", stacklevel=2)
    found = [t for t in found if not unsupported(t)][:limit]
    rows = read_rows([{"id": t.id, "split": split, "type": t.repo} for t in found], split, name)
    return rows, {t.id: t for t in found}
