"""ToolEnv: an environment whose actions are tool calls. Subclass it, decorate methods with `@agentgym.tool`, write `setup` and `score`."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from . import registry
from .env import Expert, TextEnv
from .errors import ConfigError, EnvError
from .task_file import Rows, read_rows
from .toolcall import Call, CallError, Format, Reply, Spec, find_spec
from .tools import Tool, ToolResult, as_text, within

Row = Mapping[str, Any]


class ToolEnv(TextEnv):
    """An environment over tools. What a subclass may write:

    tools          class attribute: functions, `Tool`s or MCP tool sets, besides the decorated methods (these share the episode's state in self)
    setup(task)    begin an episode of this row of the task file; return the first observation. May be async
    score(answer)  return the reward of the final answer: a number or bool, or a dict of named parts (a part "success" is not a reward but says
                   so). Called when a `final` tool was called (there is a tool `answer(text)` unless you decorate your own), with what it
                   returned; an episode without an answer gets 0. Written without the parameter, `score()`, it is called at every episode's end
    demonstrate()  generator of (tool, arguments): the expert. `found = yield "search", {"query": …}` receives what the tool gave, as text
    state_key()    key of the current state for anchor groups; by default, the same accepted calls in the same order lead to the same state
    task_file      class attribute: JSON lines beside the class's file, when neither `tasks=` nor `load_tasks` gives any
    success_at     class attribute: an episode with at least this reward from `score` is a success

    Options of every tool environment:

    tasks         path of a JSON-lines file (or a list of rows): a row has `id`, `split`, and what `setup` reads; see agentgym.task_file
    split         which rows are played
    format        how calls stand in the text: hermes | tags | openai | plain, or {name: …, options}, or a module:Class
    max_steps     completions until the episode is truncated
    max_calls     calls that one completion may hold
    instructions  True: the first observation begins with how to call the tools; a string replaces that text; False: nothing

    A malformed call, an unknown tool or a wrong argument is answered with a feedback text and `valid` = False; a tool that raises is answered
    with the error; EnvError (and what a tool declares `fatal`) ends the episode as an infrastructure failure. Set `blocking = False` where
    tools are pure computation (then give them `timeout=None`): episodes are then played in a fixed order, and no thread is started.
    """

    tools: ClassVar[Sequence[Any]] = ()
    task_file: ClassVar[str | None] = None
    format: Any = "hermes"
    max_steps: int = 10
    success_at: ClassVar[float] = 1.0
    blocking = True

    def __init__(
        self,
        *,
        tasks: str | Path | Sequence[Row] | None = None,
        split: str = "train",
        format: Any = None,
        max_steps: int | None = None,
        max_calls: int = 8,
        instructions: bool | str = True,
    ) -> None:
        super().__init__()
        self.split, self.max_calls, self._instructions = split, max_calls, instructions
        self.max_steps = self.max_steps if max_steps is None else max_steps
        if self.max_steps < 1 or max_calls < 1:
            raise EnvError(f"{type(self).__name__}: max_steps={self.max_steps}, max_calls={max_calls}; both are at least 1")
        self._form: Format = _format(self.format if format is None else format)
        self._rows = self._read(tasks)
        self._running = False

    # -- what a subclass writes -----------------------------------------------------------------------------------------------------------

    def setup(self, task: Row) -> Any:
        """Begin an episode and return its first observation."""
        raise EnvError(f"{type(self).__name__} has no setup(task): it begins an episode and returns the first observation")

    def score(self, answer: Any) -> Any:
        """Return the reward of the final answer."""
        raise EnvError(f"{type(self).__name__} has no score(answer): it returns the reward, a number or a dict of named parts")

    def load_tasks(self, split: str) -> Iterable[Row] | Rows | None:
        """Return the rows of a split (as `Rows` where they are kept between instances); None (the default) reads `task_file`."""
        return None

    def state_key(self) -> str:
        """Return the key of the current state: the calls that were accepted so far."""
        return self._history.hexdigest()

    def demonstrate(self) -> Generator[tuple[str, dict[str, Any]], str, None]:
        """Solve the current episode: yield (tool, arguments), receive what the tool gave as text."""
        raise EnvError(f"{type(self).__name__} has no demonstrate(): write it, or use another policy for the warm start")

    # -- Gymnasium ------------------------------------------------------------------------------------------------------------------------

    def tasks(self) -> list[str]:
        """Return the ids of the split's tasks."""
        return self._rows.ids

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; the first observation says how to call the tools, then what `setup` returned."""
        self._running = False
        self.task_id = self.pick_task(seed, options, self._rows.ids)
        self.task: dict[str, Any] = copy.deepcopy(dict(self._rows.by_id[self.task_id]))
        self.steps, self._success = 0, False
        self.results: list[str] = []  # what the calls of the last completion gave, without the format's marks
        self._history = hashlib.sha256(self.task_id.encode("utf-8", "surrogatepass"))
        self._parts: dict[str, float] = {}
        opening = as_text(within(None, functools.partial(self.setup, self.task)))
        self._running = True
        self._key = self.state_key()
        head = self._form.instructions(self.specs) if self._instructions is True else self._instructions or ""
        return (f"{head}\n\n{opening}" if head else opening), self._info(valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out the calls in `action`, in order, up to the first that ends the episode."""
        if not self._running:
            raise EnvError(f"{type(self).__name__}: step() outside of an episode: it has not begun, or it has ended; call reset() first")
        self._running = False  # until this step is through: after an infrastructure failure there is no going on
        self.steps += 1
        replies, reward, answer, valid = self._carry_out(action)
        self.results = [r.content for r in replies]
        terminated = answer is not None
        truncated = not terminated and self.steps >= self.max_steps
        if terminated or truncated:
            reward += self._scored(answer)
        self._running = not (terminated or truncated)
        self._key = self.state_key()
        return self._form.replies(replies), float(reward), terminated, truncated, self._info(valid)

    def expert(self, **options: Any) -> Expert:
        """Return a player that follows `demonstrate`."""
        if options:
            raise EnvError(f"{type(self).__name__}: the expert has no option {next(iter(options))!r}; it takes none")
        return _Demonstrator(self)

    # -- inside ---------------------------------------------------------------------------------------------------------------------------

    @property
    def toolbox(self) -> dict[str, Tool]:
        """Return name → tool of this environment, bound to it."""
        if "_toolbox" not in self.__dict__:
            self.__dict__["_toolbox"] = {t.name: t for t in self._all_tools()}
        box: dict[str, Tool] = self.__dict__["_toolbox"]
        return box

    @property
    def specs(self) -> list[Spec]:
        """Return what a model is told of the tools."""
        return [t.spec for t in self.toolbox.values()]

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the strings at which generation can end because a call is complete (for `rollout.stop`)."""
        return self._form.stops(self.specs)

    def call_text(self, name: str, **arguments: Any) -> str:
        """Return the action that calls a tool, in this environment's format. Raises CallError on an unknown name or a wrong argument."""
        find_spec(name, self.specs)
        self.toolbox[name].check(arguments)
        return self._form.render([Call(name, arguments)], tools=self.specs)

    def _all_tools(self) -> list[Tool]:
        decorated = dict.fromkeys(n for c in reversed(type(self).__mro__) for n, x in vars(c).items() if isinstance(x, Tool))
        found = [t for n in decorated if isinstance(t := getattr(self, n), Tool)]  # a subclass may replace one, or drop it
        for t in self.tools:
            found += [t] if isinstance(t, Tool) else list(t) if isinstance(t, Iterable) else [Tool(t)]
        if not any(t.final for t in found):
            found.append(_ANSWER if self._wants_answer else _FINISH)
        twice = [t.name for i, t in enumerate(found) if any(t.name == u.name for u in found[:i] if u is not t)]
        if twice:
            raise ConfigError(f"{type(self).__name__} has two tools named {twice[0]!r}: rename one with @agentgym.tool(name=…)")
        return found

    @property
    def _wants_answer(self) -> bool:
        return bool(inspect.signature(self.score).parameters)

    def _carry_out(self, action: str) -> tuple[list[Reply], float, ToolResult | None, bool]:
        """Return (replies, reward, the result that ended the episode or None, whether every call was accepted)."""
        try:
            calls = self._form.parse(action, self.specs)
        except CallError as e:
            return [Reply(None, str(e), error=True)], 0.0, None, False
        replies: list[Reply] = []
        reward, valid = 0.0, True
        for call in calls[: self.max_calls]:
            try:
                tool = self.toolbox[find_spec(call.name, self.specs).name]
                result = tool.run(call.arguments)
            except CallError as e:
                replies.append(Reply(call, str(e), error=True))
                valid = False
                continue
            self._history.update(json.dumps([call.name, call.arguments], sort_keys=True, default=str).encode())
            reward += result.reward
            if tool.final and not result.error:
                return replies, reward, result, valid
            replies.append(Reply(call, as_text(result.content), result.error))
            if result.done:
                return replies, reward, result, valid
        if len(calls) > self.max_calls:
            over = f"Only the first {self.max_calls} of {len(calls)} calls were carried out; make fewer at once."
            replies += [Reply(c, over, error=True) for c in calls[self.max_calls :]]
            valid = False
        return replies, reward, None, valid

    def _scored(self, answer: ToolResult | None) -> float:
        """Return the reward of the whole episode and keep its parts."""
        if self._wants_answer and answer is None:
            return 0.0
        given = () if answer is None or not self._wants_answer else (answer.content,)
        value = within(None, functools.partial(self.score, *given))
        parts = {str(k): float(v) for k, v in value.items()} if isinstance(value, Mapping) else {"score": float(value)}
        told = parts.pop("success", None)
        self._parts, total = parts, sum(parts.values())
        self._success = bool(told) if told is not None else total >= self.success_at
        return total

    def _info(self, valid: bool) -> dict[str, Any]:
        return {
            "task_id": self.task_id,
            "task_type": str(self.task.get("type", "")),
            "state": self._key,
            "success": self._success,
            "valid": valid,
            "rewards": dict(self._parts),
            "format": type(self._form).__name__,
            "tools": self.specs,
        }

    def _read(self, tasks: Any) -> Rows:
        where = type(self).__name__
        if tasks is None:
            given = self.load_tasks(self.split)
            if isinstance(given, Rows):
                return given
            if given is not None:
                return read_rows(list(given), None, where)
            if self.task_file is None:
                raise ConfigError(f"{where} has no tasks: give tasks=FILE.jsonl, set task_file on the class, or write load_tasks(split)")
            tasks = Path(inspect.getfile(type(self))).parent / self.task_file
        return read_rows(tasks, self.split, where)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be made again and does not travel."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_toolbox", "_history")} | {"_running": False}


class _Demonstrator:
    """Drives the generator of `demonstrate` and writes its calls in the environment's format."""

    def __init__(self, env: ToolEnv) -> None:
        self.env, self.plan = env, env.demonstrate()
        self.begun = False

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next action. Raises EnvError when the demonstration ends before the episode does."""
        try:
            name, arguments = self.plan.send("\n".join(self.env.results)) if self.begun else next(self.plan)
        except StopIteration:
            raise EnvError(f"{type(self.env).__name__}.demonstrate() ended before the episode did (task {self.env.task_id!r})") from None
        self.begun = True
        return self.env.call_text(name, **arguments)


def _answer(text: str) -> str:
    """Give the final answer. This ends the episode."""
    return text


def _finish() -> None:
    """Say that the task is done. This ends the episode."""


_ANSWER = Tool(_answer, name="answer", final=True, timeout=None)
_FINISH = Tool(_finish, name="finish", final=True, timeout=None)


def _format(given: Any) -> Format:
    """Return the format that is meant: a name, {name: …, options}, or an object."""
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping):
        form: Format = given
        return form
    options = dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"format: which one? Give a name, such as hermes, or {{name: tags, …}}; got {given!r}")
    make: Callable[[], Format] = registry.bind("format", name, options)
    return make()
