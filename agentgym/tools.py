"""Tools: a typed Python function becomes something a model can call, with a schema, checked arguments, a time-out and an output limit."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
import os
import re
import threading
import typing
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ConfigError, EnvError
from .toolcall import CallError, Spec

TIMEOUT, LIMIT = 30.0, 10_000


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return instead of a plain value: a reward for this step, whether the episode is over, whether it failed."""

    content: Any
    reward: float = 0.0
    done: bool = False
    error: bool = False


class Tool:
    """A callable that a model may call. Made by `@agentgym.tool`; calling it directly is calling the function.

    fn           the function or method, sync or async; every parameter has a type
    name         default: the function's
    description  default: its docstring without the part about parameters
    timeout      seconds until a call is cut off and the model is told so; None: none, and the call costs no thread
    limit        characters of the result that the model sees; the middle of a longer one is cut, with a mark that says how much
    final        a call ends the episode; what the function returns is the answer that is scored
    fatal        exceptions that mean broken infrastructure: the episode becomes an error, as with EnvError, instead of a reply
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = TIMEOUT,
        limit: int = LIMIT,
        final: bool = False,
        fatal: tuple[type[Exception], ...] = (),
    ) -> None:
        if not callable(fn):
            raise ConfigError(f"a tool is a function, got {fn!r}")
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = str(name or getattr(fn, "__name__", type(fn).__name__))
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", self.name):
            raise ConfigError(f"tool {self.name!r}: a tool's name has letters, digits, '_' and '-' only, at most 64, and begins with a letter")
        if (timeout is not None and timeout <= 0) or limit < 1:
            raise ConfigError(f"tool {self.name!r}: timeout={timeout}, limit={limit}; both are above 0 (timeout=None: no limit)")
        self.timeout, self.limit, self.final, self.fatal = timeout, limit, final, fatal
        self._description = description
        self._origin: Tool = self

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        """Bind a decorated method to its object, as a function would be."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound._origin, bound.fn = self, functools.partial(self.fn, instance)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself: nothing is checked, nothing is cut."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.spec.signature})"

    @property
    def spec(self) -> Spec:
        """Return what the model is told. Raises ConfigError on a parameter without a type, *args or **kwargs."""
        return _schema(self)[0]

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the function's types ("3" is taken for an int). Raises CallError with feedback for the model."""
        from pydantic import ValidationError

        spec, adapter = _schema(self)
        try:
            return dict(adapter.validate_python(dict(arguments)))
        except ValidationError as e:
            raise CallError(f"{self.name}: {_explain(e)} Call it as {spec.signature}.") from None

    def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments, call, and return the result as text (of a `final` tool: as it is).

        Raises CallError for what the model must mend, and EnvError where the infrastructure failed. Whatever else the function raises is the
        content of the reply: no exception of a tool ends anything but that call.
        """
        checked = self.check(arguments)
        try:
            result = within(self.timeout, functools.partial(self.fn, **checked))
        except (CallError, EnvError):
            raise
        except self.fatal as e:
            raise EnvError(f"tool {self.name!r}: the infrastructure failed: {type(e).__name__}: {e}") from e
        except CutOff:
            return ToolResult(f"{self.name} gave no answer within {self.timeout:g} s; the call was cut off.", error=True)
        except (Exception, SystemExit) as e:
            return ToolResult(clip(f"{self.name} failed: {type(e).__name__}: {e}", self.limit), error=True)
        if not isinstance(result, ToolResult):
            result = ToolResult(result)
        return result if self.final else dataclasses.replace(result, content=clip(as_text(result.content), self.limit))


@typing.overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@typing.overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = TIMEOUT,
    limit: int = LIMIT,
    final: bool = False,
    fatal: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function or method: `@tool` or `@tool(timeout=5, limit=2000, final=True, …)`; see Tool for the options."""
    return Tool(fn) if fn is not None else functools.partial(Tool, **options)


def as_text(value: Any) -> str:
    """Return what a model sees of a result: a string as it is, nothing as "OK", everything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "OK"
    from pydantic_core import to_json

    return to_json(value, fallback=str, inf_nan_mode="constants").decode()


def clip(text: str, limit: int) -> str:
    """Cut the middle out of a text of more than `limit` characters, with a mark that says how many are gone."""
    if len(text) <= limit:
        return text
    head = -(-limit * 2 // 3)
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} characters cut …]\n{text[len(text) - tail :]}"


# -- calling ------------------------------------------------------------------------------------------------------------------------------


class CutOff(Exception):
    """The call took longer than it may."""


def within(timeout: float | None, fn: Callable[[], Any]) -> Any:
    """Call `fn`, at most `timeout` seconds; what it returns may be awaitable. Raises CutOff.

    A thread cannot be killed: one that hangs stays behind (a daemon, so the process can still end) and nobody waits for it. A coroutine is
    cancelled. With timeout=None a plain function runs right here.
    """
    if timeout is None:
        result = fn()
    else:
        result = _threaded(timeout, fn)
    if not inspect.isawaitable(result):
        return result
    future = asyncio.run_coroutine_threadsafe(_awaited(result), background_loop())
    try:
        return future.result(timeout)
    except TimeoutError:
        if future.done():  # the tool's own TimeoutError
            raise
        future.cancel()
        raise CutOff from None


async def _awaited(x: Any) -> Any:
    return await x


def _threaded(timeout: float, fn: Callable[[], Any]) -> Any:
    if _is_async(fn):  # making a coroutine takes no time
        return fn()
    out: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            out.append(fn())
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=work, name="agentgym-tool", daemon=True)
    thread.start()
    thread.join(timeout)
    if failed:
        raise failed[0] if isinstance(failed[0], Exception | SystemExit) else RuntimeError(f"raised {type(failed[0]).__name__}")
    if not out:
        raise CutOff
    return out[0]


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn)


_loops: dict[int, asyncio.AbstractEventLoop] = {}
_loops_lock = threading.Lock()


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process in which async tools run: one for all, so that connection pools are shared."""
    with _loops_lock:
        pid = os.getpid()
        if pid not in _loops:  # after a fork the parent's loop has no thread here
            loop = _loops[pid] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="agentgym-tools", daemon=True).start()
        return _loops[pid]


def run_async(work: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
    """Run a coroutine in the background loop and wait for it. Raises TimeoutError after `timeout` seconds."""
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result(timeout)
    except TimeoutError:
        future.cancel()
        raise


# -- schemas ------------------------------------------------------------------------------------------------------------------------------


def _schema(t: Tool) -> tuple[Spec, Any]:
    """Return (spec, validator of the arguments) of a tool; made once, however many objects its method is bound to."""
    made: tuple[Spec, Any] | None = t._origin.__dict__.get("_made")
    if made is None:
        made = t._origin.__dict__["_made"] = _make_schema(t._origin)
    return made


def _make_schema(t: Tool) -> tuple[Spec, Any]:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from typing_extensions import TypedDict

    params = [p for i, p in enumerate(inspect.signature(t.fn).parameters.values()) if i or p.name != "self"]
    hints = _hints(t)
    for p in params:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) or p.name not in hints:
            raise ConfigError(f"tool {t.name!r}: the parameter `{p}` needs a name and a type, such as `query: str`; a model must know what to give")
    fields = {p.name: hints[p.name] if p.default is p.empty else typing.NotRequired[hints[p.name]] for p in params}
    shape = TypedDict("Arguments", fields)  # type: ignore[misc]
    shape.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)  # type: ignore[attr-defined]
    try:
        adapter: Any = TypeAdapter(shape)
        schema = adapter.json_schema()
    except PydanticUserError as e:
        raise ConfigError(f"tool {t.name!r}: its parameters have no JSON schema: {e.message}") from e
    text, about = _doc(inspect.getdoc(t.fn) or "")
    return Spec(t.name, t._description or text, _tidy(schema, params, about), t.final), adapter


def _hints(t: Tool) -> dict[str, Any]:
    fn = t.fn if inspect.isroutine(t.fn) else type(t.fn).__call__
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as e:
        raise ConfigError(f"tool {t.name!r}: a type in its signature is unknown: {e}") from e


def _tidy(schema: dict[str, Any], params: list[inspect.Parameter], about: dict[str, str]) -> dict[str, Any]:
    """Return the schema as endpoints like it: no titles, defaults and descriptions filled in."""
    properties = {n: {k: v for k, v in p.items() if k != "title"} for n, p in schema.get("properties", {}).items()}
    for p in params:
        if p.default is not p.empty and p.default is not None:
            properties[p.name].setdefault("default", p.default)
        if p.name in about:
            properties[p.name].setdefault("description", about[p.name])
    out = {"type": "object", "properties": properties, "required": [p.name for p in params if p.default is p.empty]}
    return out | {k: v for k, v in schema.items() if k == "$defs"}


_PARAM = re.compile(r"\s*(?::param\s+)?`?(\w+)`?\s*(?:\([^)]*\))?\s*:\s*(.+)")


def _doc(doc: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into (description, parameter → description): Google's "Args:" section or `:param x:` lines."""
    head, _, rest = doc.partition("\nArgs:")
    lines = head.splitlines()
    candidates = rest.splitlines() + [x for x in lines if x.lstrip().startswith(":param")]
    about = {m[1]: m[2].strip() for line in candidates if (m := _PARAM.fullmatch(line))}
    kept = [x for x in lines if not x.lstrip().startswith((":param", ":return"))]
    return "\n".join(kept).strip(), about


def _explain(e: Any) -> str:
    """Return what is wrong with the arguments, at most three things."""
    said = []
    for error in e.errors()[:3]:
        where = ".".join(str(x) for x in error["loc"])
        if error["type"] == "missing":
            said.append(f"the argument {where!r} is missing.")
        elif error["type"] == "extra_forbidden":
            said.append(f"there is no argument {where!r}.")
        else:
            said.append(f"argument {where!r}: {error['msg'][:1].lower()}{error['msg'][1:]}, got {error['input']!r:.60}.")
    return " ".join(said)
