"""One Chromium per process, with the shop's server beside it, for browser.py.

A process has one thread that owns an event loop, and in it the server (on 127.0.0.1, at a port of its own), Playwright, and one Chromium with a
context per episode. All of it begins with the first episode, begins anew when it has died, and ends with the process. No browser loads anything
but our server's pages.

Environment variables: AGENTGYM_CHROMIUM, the browser's executable; AGENTGYM_BROWSER_EPISODES, how many may be open in a process (default 16).
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.errors import EnvError

from .server import Pages, app, http_server
from .sessions import Sessions, Visitor

START, CALL, WAIT = 60.0, 20.0, 50.0  # seconds: to start the browser, for anything that it does, to be let in
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ARGS = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-proxy-server", "--disable-dev-shm-usage")
_T = TypeVar("_T")


@dataclass(slots=True)
class Window:
    """What an episode has of the browser: a context with one page, and the server's session of that name."""

    sid: str
    visitor: Visitor
    context: Any = None
    page: Any = None


class Browser:
    """Chromium and the server, in a thread of their own; see the top of this file."""

    def __init__(self, episodes: int) -> None:
        self.episodes, self._process = episodes, os.getpid()
        self._free = threading.Semaphore(episodes)
        self._sessions = Sessions(None, idle=math.inf)
        self._number = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._driver: Any = None
        self._chromium: Any = None
        self.base = ""  # the server's address
        self.heard = 0.0  # when the browser last did something
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_quietly)
        self._starting = asyncio.Lock()
        self._thread = threading.Thread(target=self._run, name="webshop-browser", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @property
    def ours(self) -> bool:
        """Return whether it is this process's: in one that was forked, the thread is not there."""
        return os.getpid() == self._process

    def call(self, work: Coroutine[Any, Any, _T], seconds: float, what: str) -> _T:
        """Run a coroutine in the browser's thread and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise EnvError(f"webshop browser: {what} took longer than {seconds:.0f} s; the browser's thread hangs") from None

    def enter(self, visitor: Visitor) -> Window:
        """Return an empty page for one episode, when there is room."""
        if not self._free.acquire(timeout=WAIT):
            raise EnvError(
                f"webshop browser: {self.episodes} episodes are open in this process, and none of them ended within {WAIT:.0f} s. "
                "Close environments that are not in use, play fewer at a time (rollout.concurrency), or set AGENTGYM_BROWSER_EPISODES"
            )
        try:
            return self.call(self._enter(visitor), START + CALL, "starting the browser")
        except BaseException:
            self._free.release()
            raise

    def leave(self, window: Window) -> None:
        """Close an episode's page, without waiting for it, and make room."""
        if self.ours:
            self._loop.call_soon_threadsafe(self._begin_to_leave, window)

    def close(self) -> None:
        """End Chromium, the driver, the server and the thread; at the end of the process."""
        atexit.unregister(self.close)
        if not self.ours:
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # -- in the loop ----------------------------------------------------------------------------------------------------------------------

    async def _enter(self, visitor: Visitor) -> Window:
        self._number += 1
        window = Window(f"episode{self._number}", visitor)
        self._sessions.add(window.sid, visitor)
        try:
            await self._open(window)
        except BaseException as e:
            self._sessions.remove(window.sid)
            await self._shut(window)
            if not isinstance(e, Exception) or isinstance(e, EnvError):
                raise
            raise EnvError(f"webshop browser: no page can be opened ({reason(e)}); the next episode tries again") from e
        return window

    async def _open(self, window: Window) -> None:
        chromium = await self._ready()
        try:
            return await self._fill(window, chromium)
        except TimeoutError:
            if time.monotonic() - self.heard < CALL:
                raise  # it works for others: it is only slow
        except Exception:
            pass  # it has died; one whose driver has died does not know it
        await self._fill(window, await self._ready(failed=chromium))

    async def _ready(self, failed: Any = None) -> Any:
        """Return a Chromium that runs, and is not the one that failed."""
        async with self._starting:
            if not self.base:
                self.base = await self._serve()
            if self._chromium is None or self._chromium is failed or not self._chromium.is_connected():
                await self._start()
            return self._chromium

    async def _fill(self, window: Window, chromium: Any) -> None:
        async with asyncio.timeout(CALL):
            window.context = await chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-US", service_workers="block")
            window.context.set_default_timeout(CALL * 1000)
            await window.context.route(re.compile(f"^(?!{re.escape(self.base)}/)"), lambda route: route.abort())
            window.page = await window.context.new_page()

    async def _shut(self, window: Window) -> None:
        if window.context is not None:
            with suppress(Exception):
                await asyncio.wait_for(window.context.close(), CALL)
            window.context = None

    def _begin_to_leave(self, window: Window) -> None:
        task = self._loop.create_task(self._leave(window))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, window: Window) -> None:
        self._sessions.remove(window.sid)
        await self._shut(window)
        self._free.release()

    async def _serve(self) -> str:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = http_server(app(Pages(self._sessions)))
        self._serving = self._loop.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        self._server = server
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def _start(self) -> None:
        async_playwright, executable = _playwright(), _executable()
        await self._quit()
        try:
            async with asyncio.timeout(START):
                self._driver = await async_playwright().start()
                self._chromium = await self._driver.chromium.launch(executable_path=executable, args=_ARGS)
        except Exception as e:
            await self._quit()
            raise EnvError(f"webshop browser: {executable} does not start: {reason(e)}") from e

    async def _quit(self) -> None:
        """End Chromium and the driver, dead or alive."""
        for work in (self._chromium and self._chromium.close, self._driver and self._driver.stop):
            if work:
                with suppress(Exception):
                    await asyncio.wait_for(work(), 5)
        self._driver = self._chromium = None

    async def _stop(self) -> None:
        await self._quit()
        if self.base:
            self._server.should_exit = True
            await asyncio.wait_for(self._serving, 3)


def _quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what went wrong in the loop, except that nobody asked for an answer of a browser that has died."""
    if "never retrieved" not in context["message"]:
        loop.default_exception_handler(context)


_lock = threading.Lock()
_browsers: dict[int, Browser] = {}  # by process: a fork has its own


def browser() -> Browser:
    """Return the browser of this process; it starts with its first episode."""
    with _lock:
        if os.getpid() not in _browsers:
            said = os.environ.get("AGENTGYM_BROWSER_EPISODES", "16")
            if not said.isdigit() or int(said) < 1:
                raise EnvError(f"AGENTGYM_BROWSER_EPISODES is {said!r}; it is a whole number from 1 up: how many episodes may be open in a process")
            _browsers[os.getpid()] = Browser(int(said))
        return _browsers[os.getpid()]


def require() -> None:
    """Check that there is a browser to start. Raises EnvError that says what to install."""
    _playwright()
    _executable()


def _playwright() -> Any:
    try:
        from playwright.async_api import async_playwright
    except ImportError as e:
        raise EnvError(f"webshop's browser mode needs Playwright ({e}): pip install 'agentgym[browser]'") from e
    return async_playwright


def _executable() -> str:
    if wanted := os.environ.get("AGENTGYM_CHROMIUM"):
        if found := shutil.which(wanted):
            return found
        raise EnvError(f"AGENTGYM_CHROMIUM is {wanted!r}, which is no program that can be run; set it to the path of Chromium")
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise EnvError(
        "webshop's browser mode needs Chromium: apt-get install -y --no-install-recommends chromium-headless-shell "
        f"(or set AGENTGYM_CHROMIUM to its path; looked for {', '.join(_NAMES)})"
    )


def reason(e: Exception) -> str:
    """Return what an error says, in a line; Playwright's go on with a log."""
    said = str(e).strip().partition("\n")[0]
    return said if said and type(e).__module__.startswith("playwright") else f"{type(e).__name__}: {said}"
