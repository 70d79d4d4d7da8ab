"""Connections to MCP servers: one per address and process, kept by a task of its own in the background loop. Used by mcp_client.py."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import os
import shlex
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio

from .errors import ConfigError, EnvError
from .toolcall import CallError
from .tools import ToolResult, as_text, clip, run_async

CLOSING = 10.0  # seconds that a server has to end: its stdin is closed, after 2 s it gets SIGTERM, after 2 more SIGKILL
_INVALID_PARAMS = -32602
# Errors that say that the connection is gone or was refused, not that the tool failed. -32001 is "session not found" of a server that was
# started anew; the texts are what the package `mcp` makes of HTTP's status.
_LOST_CODES, _LOST_TEXTS = (-32000, -32001, -32600), ("Session terminated", "Server returned an error response")


@dataclass(frozen=True)
class Address:
    """Where a server is: one connection per address and process."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    start_timeout: float = field(default=30.0, compare=False)

    def __str__(self) -> str:
        return self.url.partition("?")[0] or shlex.join(self.command)  # without the query: keys are put there


def address_of(where: str | Sequence[str], env: Mapping[str, str], headers: Mapping[str, str], start_timeout: float) -> Address:
    """Return the address of a URL or a command. Raises ConfigError where an argument is wrong or does not belong to it."""
    is_url = isinstance(where, str) and where.strip().lower().startswith(("http://", "https://"))
    if env and is_url:
        raise ConfigError(f"mcp({where!r}, env=…): env is for a command; a server behind a URL takes headers={{…}}")
    if headers and not is_url:
        raise ConfigError(f"mcp({where!r}, headers=…): headers are for a URL; a command takes env={{…}}")
    if is_url:
        url = str(where).strip()
        if not urlsplit(url).hostname:
            raise ConfigError(f"mcp({where!r}) is no URL; expected something like http://localhost:8000/mcp")
        return Address(url=url, headers=tuple(sorted(headers.items())), start_timeout=start_timeout)
    try:
        words = tuple(shlex.split(where)) if isinstance(where, str) else tuple(str(w) for w in where)
    except ValueError as e:
        raise ConfigError(f"mcp({where!r}) is no command line: {e}; give a list of words instead") from None
    if not words:
        raise ConfigError("mcp('') has no command: give a command line, such as 'python server.py', or a URL")
    return Address(words, env=tuple(sorted(env.items())), start_timeout=start_timeout)


connections: dict[Address, _Connection] = {}
_open: set[_Connection] = set()


class _Connection:
    """One session with a server, made and used in the background loop only.

    It lives in a task of its own, since anyio's scopes must be left by the task that entered them.
    """

    def __init__(self, address: Address) -> None:
        self.address, self.pid, self.loop = address, os.getpid(), asyncio.get_running_loop()
        self.opened, self.stop = asyncio.Event(), asyncio.Event()
        self.session: Any = None
        self.listed: list[dict[str, Any]] = []
        self.refused = ""  # why the connection did not come about
        self.fault: BaseException | None = None
        self.status = ""  # the last HTTP status that was an error: the package `mcp` does not pass it on
        self.stderr: _Stderr | None = None
        _open.add(self)
        self.task = self.loop.create_task(self._live())
        self.task.add_done_callback(lambda _: _open.discard(self))

    @property
    def dead(self) -> bool:
        """Return whether nothing can be asked of it: ended, broken, or of the process that this one was forked from."""
        return self.pid != os.getpid() or self.stop.is_set() or self.task.done()

    async def _live(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self.address.start_timeout):
                    self.session = await self._begin(stack)
                    await _greet(self.session)
                    self.listed = await _list(self.session)
                self.opened.set()
                await self.stop.wait()
                self.loop.call_later(CLOSING, self.task.cancel)
        except BaseException as e:  # nobody awaits this task: the calls ask what became of it
            while isinstance(e, BaseExceptionGroup):
                e = e.exceptions[0]
            self.fault = e
        if not self.opened.is_set():
            self.refused = f"MCP server {self.address} cannot be used: {await self._why(self.fault)}"
            self.opened.set()

    async def _begin(self, stack: contextlib.AsyncExitStack) -> Any:
        """Start the server or connect to it, and return the session, entered."""
        from mcp import ClientSession
        from mcp.client.stdio import StdioServerParameters, stdio_client

        if self.address.url:
            streams = await stack.enter_async_context(await _http(self.address, stack, self._note))
        else:
            program, *words = self.address.command
            server = StdioServerParameters(command=program, args=words, env=dict(self.address.env))
            self.stderr = _Stderr(lambda: self.loop.call_soon_threadsafe(self._silent))
            with self.stderr.pipe:  # only the server keeps it open, so that it ends with the server
                streams = await stack.enter_async_context(stdio_client(server, errlog=self.stderr.pipe))
        return await stack.enter_async_context(ClientSession(streams[0], streams[1]))

    async def _note(self, response: Any) -> None:
        bad = response.status_code >= 400 and response.status_code != 405  # 405: "no stream besides the answers", which is allowed
        self.status = f"HTTP {response.status_code} {response.reason_phrase}" if bad else ""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool. Raises CallError where the server refuses the arguments, EnvError where the connection is lost."""
        work = self.loop.create_task(self.session.call_tool(name, arguments))
        try:  # mcp 1.x leaves calls waiting for ever when the connection ends
            await asyncio.wait({work, self.task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _keep(self._probe(self.address.start_timeout))
            raise
        finally:
            unanswered = work.cancel()
        try:
            if unanswered:
                raise ConnectionError("the connection ended")
            return _result(_plain(work.result()))
        except _server_error() as e:
            code, said = e.error.code, clip(e.error.message, 2000)
            if code == _INVALID_PARAMS:
                raise CallError(f"{name}: {said}") from None
            if code not in _LOST_CODES and said not in _LOST_TEXTS:
                return ToolResult(f"{name} failed: {said}", error=True)
            lost: Exception = e
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError) as e:
            lost = e
        self.stop.set()
        await asyncio.wait({self.task}, timeout=1.0)  # its end says more than "Connection closed"
        raise EnvError(f"MCP server {self.address} was lost in a call of {name!r}; the next call connects again. {await self._why(lost)}")

    def _silent(self) -> None:
        """Look after a server that closed its stderr: most likely it is gone, and mcp 1.x does not tell every call so."""
        if self.opened.is_set() and not self.dead:
            _keep(self._probe(5.0))

    async def _probe(self, seconds: float) -> None:
        """End the connection if the server does not even answer a ping: it would let every further call hang too."""
        try:
            async with asyncio.timeout(seconds):
                await self.session.send_ping()
        except TimeoutError:
            self.stop.set()
        except Exception:  # an answer, or a connection that is gone: the next call sees which
            pass

    async def _why(self, e: BaseException | None) -> str:
        if isinstance(e, FileNotFoundError):
            return f"there is no program {self.address.command[0]!r}; install it, or give its path."
        if isinstance(e, TimeoutError) and not self.opened.is_set():
            said = f"it did not list its tools within {self.address.start_timeout:g} s (start_timeout)"
        else:
            e = self.fault if isinstance(self.fault, Exception) else e
            said = f"{type(e).__name__}: {e}" + (f" ({self.status})" if self.status else "")
        if self.stderr is None:
            return f"{said}. Is {self.address} an MCP server's address, and does it run?" if not self.opened.is_set() else f"{said}."
        for _ in range(25):  # the last words may still be in the pipe
            if not self.stderr.thread.is_alive():
                break
            await asyncio.sleep(0.02)
        return f"{said}. {self.stderr}"


class _Stderr:
    """The last lines that a server wrote to stderr. A pipe and not a file, which would grow for as long as the server talks."""

    def __init__(self, at_end: Callable[[], object]) -> None:
        reading, writing = os.pipe()
        self.pipe, self.lines = os.fdopen(writing, "w"), deque[str](maxlen=12)
        self.thread = threading.Thread(target=self._read, args=(reading, at_end), name="agentgym-mcp-stderr", daemon=True)
        self.thread.start()

    def _read(self, reading: int, at_end: Callable[[], object]) -> None:
        with open(reading, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                self.lines.append(line.rstrip()[:300])
        at_end()

    def __str__(self) -> str:
        return "The end of its stderr:\n" + "\n".join(self.lines) if self.lines else "It wrote nothing to stderr."


async def _http(address: Address, stack: contextlib.AsyncExitStack, note: Any) -> Any:
    from mcp.client import sse, streamable_http
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers, seconds = dict(address.headers), address.start_timeout
    if urlsplit(address.url).path.rstrip("/").endswith("/sse"):
        return sse.sse_client(address.url, headers=headers, timeout=seconds, sse_read_timeout=86_400)
    connect: Any = getattr(streamable_http, "streamable_http_client", None)
    if connect is None:  # mcp < 1.24
        return vars(streamable_http)["streamablehttp_client"](address.url, headers=headers)
    client: Any = create_mcp_http_client(headers=headers)
    client.timeout = (seconds, None, seconds, seconds)  # reading has no limit of its own: every call has one
    client.event_hooks = {"response": [note]}
    no_limit = {"max_sse_event_size": None} if "max_sse_event_size" in inspect.signature(connect).parameters else {}
    return connect(address.url, http_client=await stack.enter_async_context(client), **no_limit)


async def _greet(session: Any) -> None:
    try:
        await session.initialize()
    except _server_error() as e:
        if not hasattr(session, "discover"):  # mcp 1.x
            raise
        try:
            await session.discover()  # a server of the protocol of 2026 only
        except _server_error():
            raise e from None


async def _list(session: Any) -> list[dict[str, Any]]:
    from mcp import types

    page = _plain(await session.list_tools())
    tools = list(page["tools"])
    while cursor := page.get("nextCursor"):
        if "params" in inspect.signature(session.list_tools).parameters:
            more = session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        else:  # mcp < 1.19
            more = session.list_tools(cursor)
        page = _plain(await more)
        tools += page["tools"]
    return tools


def _plain(model: Any) -> dict[str, Any]:
    """Return the message as it was sent: the field names of the protocol are the same in mcp 1.x and 2.x, the attributes are not."""
    return dict(model.model_dump(by_alias=True, mode="json", exclude_none=True))


def _server_error() -> type[Any]:
    from mcp.shared import exceptions

    error: type[Any] = getattr(exceptions, "MCPError", None) or vars(exceptions)["McpError"]
    return error


async def connected(address: Address) -> _Connection:
    """Return the live connection of this process, in the background loop. Raises EnvError where there is none to be had."""
    connection = connections.get(address)
    if connection is None or connection.dead:
        connection = connections[address] = _Connection(address)
    await connection.opened.wait()
    if connection.refused:
        raise EnvError(connection.refused)
    return connection


def connect(address: Address) -> _Connection:
    """Return the live connection of this process, made if need be. Raises ConfigError without the package `mcp`, EnvError."""
    try:  # here and not in the loop: it takes a second, in which the loop would do nothing else
        import mcp as _  # noqa: F401
    except ImportError as e:
        raise ConfigError(f"MCP server {address} needs the package 'mcp', which cannot be imported ({e}): pip install 'agentgym[mcp]'") from e
    connection = connections.get(address)
    if connection is not None and not connection.dead and connection.opened.is_set() and not connection.refused:
        return connection
    made: _Connection = wait_for(connected(address), address.start_timeout + CLOSING + 5)
    return made


async def disconnect(connections: Sequence[_Connection]) -> None:
    """End connections, and the servers that they started; wait for it a while."""
    for c in connections:
        c.stop.set()
        if not c.opened.is_set():
            c.task.cancel()
    await asyncio.wait({c.task for c in connections}, timeout=CLOSING)


@atexit.register
def _close_all() -> None:
    mine = [c for c in _open if c.pid == os.getpid()]
    if mine:
        with contextlib.suppress(Exception):
            wait_for(disconnect(mine), CLOSING + 1)


def wait_for(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Run a coroutine in the background loop and wait for it, from any thread but the loop's own."""
    if threading.current_thread().name == "agentgym-tools":
        work.close()
        raise EnvError("an async function asks for MCP tools whose server is not connected yet, and it cannot wait here: make setup() a plain def")
    try:
        return run_async(work, seconds)
    except TimeoutError:
        raise EnvError(f"an MCP server did not start or end within {seconds:g} s") from None


_tasks: set[asyncio.Task[None]] = set()


def _keep(work: Coroutine[Any, Any, None]) -> None:
    """Run in the background; the loop itself holds tasks only weakly."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def short(text: str) -> str:
    """Cut the middle out of a message of more than 200 characters."""
    return text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"  # the value comes first in it, what is wrong last


def _result(told: Mapping[str, Any]) -> ToolResult:
    """Return a result as text: its texts, a mark for what is no text, and the structured content only where there is no text."""
    blocks = told.get("content", [])
    parts = [_block(b) for b in blocks]
    if not any(b.get("text") for b in blocks) and told.get("structuredContent") is not None:
        parts.append(as_text(told["structuredContent"]))
    return ToolResult("\n".join(parts) or as_text(None), error=bool(told.get("isError")))


def _block(block: Mapping[str, Any]) -> str:
    kind = block["type"]
    inner = block.get("resource", block)
    if "text" in inner:
        return str(inner["text"])
    if kind == "resource_link":
        return f"[resource {block.get('name', '')} {block.get('uri', '')}]"
    data = inner.get("data") or inner.get("blob") or ""
    return f"[{kind} {inner.get('mimeType', 'unknown')}, {len(data) * 3 // 4 - data[-2:].count('='):,} bytes]"
