"""The shop through a real Chromium: the same tasks and actions; where a visitor stands is read from the browser's address.

Everything waits for a limited time. What fails raises EnvError: nobody is paid for a page that the browser never showed.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from agentgym.errors import EnvError

from . import address
from .address import LONGEST
from .chromium import CALL, Browser, Window, browser, reason
from .goals import Goals
from .sessions import Visitor
from .shop import Clickable, Shop, clickables, parsed
from .types import Goal, Page, Place

Snapshot = Literal["text", "aria"]
_T = TypeVar("_T")

# The visible pieces of text, in document order.
_TEXTS = """() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const at = walk.currentNode.parentElement;
    if (!["SCRIPT", "STYLE", "NOSCRIPT"].includes(at.tagName) && at.checkVisibility()) found.push(walk.currentNode.data);
  }
  return found;
}"""
# What a person would click for a button, a product's link, or the value of an option.
_FIND = """([kind, name, text]) => {
  const all = css => [...document.querySelectorAll(css)];
  if (kind === "option") {
    const radio = all("input[type=radio]").find(e => e.name === name && e.value === text);
    return radio ? radio.labels[0] : null;
  }
  return all(kind === "button" ? "button.btn" : "a.product-link").find(e => e.textContent.trim() === name) || null;
}"""


class BrowserVisit:
    """A shopper in the shop, by browser; what it does is what `shop.Session` does.

    `place`, `page` and `reward_info` are those of the page that the browser shows. A search of more than address.LONGEST characters is not
    possible. After an EnvError the visit is over; `close` it.
    """

    def __init__(self, shop: Shop, goals: Goals, goal: Goal, *, snapshot: Snapshot = "text") -> None:
        """Open the first page. Raises EnvError where there is no browser, or no room for one more episode."""
        self.goal, self.snapshot = goal, snapshot
        self._browser = browser()
        window = self._browser.enter(Visitor(shop, goals, lambda: goal))
        self._leave = weakref.finalize(self, self._browser.leave, window)  # also for one that nobody closed
        self._leave.atexit = False
        self._tab = Tab(self._browser, window)
        self.place, self.reward_info = Place(), window.visitor.reward_info
        try:
            self._do(self._tab.begin(), "opening the shop")
        except BaseException:
            self.close()
            raise

    @property
    def page(self) -> Page:
        """Return what is shown there."""
        return self._tab.shown

    @property
    def clickables(self) -> dict[str, Clickable]:
        """Return what can be clicked here."""
        return self._tab.clickables

    def act(self, action: str) -> bool:
        """Carry out `search[words]` or `click[text]`; return False, and change nothing, where that is not possible."""
        name, argument = parsed(action)
        if name == "search" and len(argument) <= LONGEST:
            self._do(self._tab.search(argument), "a search")
        elif name == "click" and argument != "search" and argument in self.clickables:
            self._do(self._tab.click(self.clickables[argument], argument), f"a click on {argument!r:.60}")
        else:
            return False
        self.place, self.reward_info = self._tab.shown.place, self._tab.visitor.reward_info
        return True

    def observation(self) -> str:
        """Return what the page shows: its visible text, in the form of `render.text`, or the accessibility tree in Playwright's notation."""
        if self.snapshot == "aria":
            return self._do(self._tab.tree(), "a snapshot")
        return self._do(self._tab.text(), "reading the page")

    def screenshot(self) -> bytes:
        """Return a picture of the whole page, as PNG."""
        return self._do(self._tab.page.screenshot(full_page=True, animations="disabled"), "a screenshot")

    def close(self) -> None:
        """Close the pages of this episode."""
        self._leave()

    def _do(self, work: Coroutine[Any, Any, _T], what: str) -> _T:
        if not self._browser.ours:
            work.close()
            raise EnvError("webshop browser: this episode belongs to the process that this one was forked from; begin another one with reset()")
        return self._browser.call(self._tab.whole(work, what), CALL + 5, what)


class Tab:
    """One episode's page. Everything here runs in the loop of the browser's thread."""

    def __init__(self, browser: Browser, window: Window) -> None:
        self.browser, self.page, self.sid, self.visitor = browser, window.page, window.sid, window.visitor
        self.shown = Page(Place(), self.visitor.goal().instruction)
        self.clickables: dict[str, Clickable] = {}
        self.broken = ""

    async def whole(self, work: Coroutine[Any, Any, _T], what: str) -> _T:
        """Await some work on the page, for CALL seconds at most. What fails breaks the visit: nobody knows where the browser is then."""
        if self.broken:
            work.close()
            raise EnvError(f"webshop browser: this episode is broken, since {self.broken}; begin another one")
        try:
            found = await asyncio.wait_for(work, CALL)
        except (TimeoutError, asyncio.CancelledError):
            self.broken = f"{what} took longer than {CALL:.0f} s"
        except Exception as e:  # a driver that died raises plain Exceptions
            self.broken = str(e) if isinstance(e, EnvError) else f"{what} failed: {reason(e)}"
        else:
            self.browser.heard = time.monotonic()
            return found
        raise EnvError(f"webshop browser: {self.broken}. The episode is void; the next one begins afresh, with a new browser where this one has died")

    async def begin(self) -> None:
        """Show the first page."""
        await self._go(Place())

    async def search(self, words: str) -> None:
        """Search by the box, where there is one and it takes these words; else go to the address of the results."""
        if self.shown.place.kind == "index" and words.isprintable():
            await self.page.fill("#search_input", words)
            async with self._arriving():
                await self.page.click("#form-buscar .btn")
        else:
            await self._go(Place("results", tuple(words.split(" "))))
        if self.shown.place != Place("results", tuple(words.split(" "))):
            raise EnvError(f"a search for {words!r:.60} led to {self.page.url!r:.200}")

    async def click(self, what: Clickable, text: str) -> None:
        """Click on what shows this text."""
        if what.kind == "option" and dict(self.shown.place.options).get(what.name) == text:
            return  # chosen already: a click on it does nothing
        found = (await self.page.evaluate_handle(_FIND, [what.kind, what.name, text])).as_element()
        if found is None:
            raise EnvError(f"the page {self.page.url!r:.200} does not show {text!r:.60}, which it should")
        async with self._arriving():
            await found.click()

    async def text(self) -> str:
        """Return the visible text."""
        found = [text.strip() for text in await self.page.evaluate(_TEXTS)]
        return " [SEP] ".join([text for text in found if text])

    async def tree(self) -> str:
        """Return the accessibility tree, without addresses: they name the session."""
        found = await self.page.locator("body").aria_snapshot()
        return "\n".join(line for line in found.splitlines() if not line.lstrip().startswith("- /url:"))

    async def _go(self, at: Place) -> None:
        self._arrived(await self.page.goto(self.browser.base + address.path(self.sid, at), wait_until="domcontentloaded"))

    @asynccontextmanager
    async def _arriving(self) -> AsyncIterator[None]:
        async with self.page.expect_navigation(wait_until="domcontentloaded") as coming:
            yield
        self._arrived(await coming.value)

    def _arrived(self, response: Any) -> None:
        """Read from the address where the browser is, and what is there."""
        url = self.page.url
        if response is None or response.status >= 400 or not url.startswith(f"{self.browser.base}/"):
            raise EnvError(f"the server's answer to {url!r:.200} was {response.status if response else 'none'}")
        sid, at = address.place(url.removeprefix(self.browser.base))
        info, visitor = self.visitor.reward_info, self.visitor
        if sid != self.sid or (at.kind == "done" and info is None):
            raise EnvError(f"the browser is at {url!r:.200}, which is no page of this episode")
        self.shown = visitor.shop.page(visitor.goal(), at, visitor.visited, info["reward"] if info else 0.0)
        self.clickables = clickables(self.shown)
