"""The shop over HTTP, for people and browsers: the original's pages at the original's addresses (see address.py).

    GET  /              what this is, and a link to a new session
    GET  /{session}     its instruction, and a search box; the box posts `search_query` here
    GET  /search_results/…, /item_page/…, /item_sub_page/…, /done/…
    GET  /health        → {"status": "healthy", "products": …, "tasks": …, "sessions": …, "version": …}

Which task a session has, its name says: `fixed_7` (or with more around it: `fixed_7_again`) task 7 of the split, `synthetic%2F457` the task of
that id, any other name one that depends on the name alone. What cannot be answered is said on a plain page: 400 a damaged address, 404 no such
page, product or task, 405, 413 and 414 too long.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import secrets
from functools import partial
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qs, parse_qsl

from agentgym.errors import ConfigError, TaskError
from agentgym.listen import listen, memory_mb

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError as e:
    raise ConfigError(f"the WebShop server needs further packages ({e}): pip install 'agentgym[webshop]'") from e

from . import address
from .address import LONGEST, BadAddress
from .html import Report, page_html, plain_html, policy, stylesheet
from .sessions import Sessions, Visitor, choose
from .shop import Shop
from .tasks import Tasks
from .types import Place

LONGEST_ADDRESS = 64_000  # bytes


class Pages:
    """Answers requests for pages of the shop. All of it runs in the event loop: a page takes about a millisecond.

    images  show the products' pictures, which browsers load from wherever they are
    report  show on the last page what was asked for, and the parts of the score
    """

    def __init__(self, sessions: Sessions, *, images: bool = False, report: bool = False) -> None:
        self.sessions, self.images, self.report = sessions, images, report
        self._headers = {"content-security-policy": policy(images), "cache-control": "no-store", "referrer-policy": "no-referrer"}
        self._style = stylesheet()

    async def style(self, request: Request) -> Response:
        """Return the style sheet."""
        return Response(self._style, media_type="text/css", headers={"cache-control": "max-age=3600", "x-content-type-options": "nosniff"})

    async def page(self, request: Request) -> Response:
        """Return a page of the shop, or take the words of a search."""
        raw = request.scope.get("raw_path") or request.url.path.encode()
        query = request.scope["query_string"]
        if len(raw) + len(query) > LONGEST_ADDRESS:
            raise BadAddress(414, f"the address is longer than {LONGEST_ADDRESS:,} bytes")
        sid, at = address.place(raw.decode("latin-1"))
        visitor = self.sessions.find(sid)
        if request.method == "POST":
            if at.kind != "index":
                raise BadAddress(405, "only a search is posted, to the address of a session: /SESSION")
            return RedirectResponse(address.path(sid, Place("results", await _words(request))), 303)
        if at.kind == "item" and query:  # the form of options, where there are no scripts
            chosen = {**dict(at.options), **dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))}
            return RedirectResponse(address.path(sid, Place("item", at.keywords, at.page, at.asin, options=tuple(chosen.items()))), 303)
        page = visitor.open(at)
        told = Report(visitor.goal(), visitor.reward_info or {}) if self.report and at.kind == "done" else None
        return self.answer(page_html(page, sid, told, self.images))

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Say what is wrong with a request."""
        status = HTTPStatus(getattr(error, "status", getattr(error, "status_code", 404)))
        if isinstance(error, BadAddress | TaskError):
            message = str(error)
        else:
            message = f"{request.method} {request.url.path:.100} is not possible here"
        return self.answer(plain_html("error", status=int(status), title=status.phrase, message=message), int(status))

    async def fail(self, request: Request, error: Exception) -> Response:
        """Say that the server failed. The traceback is written to stderr, by uvicorn."""
        message = f"The server failed ({type(error).__name__}: {error}). This is no fault of yours; the server's log has the details."
        return self.answer(plain_html("error", status=500, title="Internal Server Error", message=message), 500)

    def answer(self, text: str, status: int = 200) -> Response:
        """Return a page with what a browser must know about it."""
        return HTMLResponse(text.encode("utf-8", "replace"), status, headers=self._headers)


async def _words(request: Request) -> tuple[str, ...]:
    """Return the words of a search that a form posted."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_ADDRESS:
                raise BadAddress(413, f"what was posted is larger than {LONGEST_ADDRESS:,} bytes")
    except ClientDisconnect:
        raise BadAddress(400, "the client went away") from None
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20).get("search_query", [""])[-1]
    except ValueError:
        raise BadAddress(400, "what was posted is no form (application/x-www-form-urlencoded, in UTF-8)") from None
    if not found:
        raise BadAddress(400, "a search has the field `search_query`, with at least one character")
    if len(found) > LONGEST:
        raise BadAddress(413, f"the words of a search are at most {LONGEST:,} characters long")
    return tuple(found.lower().split(" "))


def app(pages: Pages, *routes: Route) -> Starlette:
    """Return an ASGI application: the pages of the shop, and before them other routes."""
    refused = {BadAddress: pages.refuse, TaskError: pages.refuse, 404: pages.refuse, 405: pages.refuse, Exception: pages.fail}
    style, shop = Route("/static/style.css", pages.style), Route("/{rest:path}", pages.page, methods=["GET", "POST"])
    return Starlette(routes=[*routes, style, shop], exception_handlers=refused)


def make_app(shop: Shop, tasks: Tasks, *, limit: int = 100_000, idle: float = 3600.0, images: bool = False, report: bool = True) -> Starlette:
    """Return an ASGI application that serves a shop; `limit` and `idle` as in Sessions, `images` and `report` as in Pages."""

    def new(sid: str) -> Visitor:
        goals, number = choose(tasks, sid)
        return Visitor(shop, goals, partial(goals.goal, number))

    sessions = Sessions(new, limit=limit, idle=idle)
    pages = Pages(sessions, images=images, report=report)

    async def start(request: Request) -> Response:
        size = f"{len(shop.catalogue):,}"
        kind, members = next((k, m) for k, m in tasks.members.items() if len(m))
        example = address.path(f"{kind}/{members[0]}", Place())
        sid = secrets.token_hex(5)
        return pages.answer(plain_html("start", products=size, sid=sid, last=len(tasks) - 1, split=tasks.split, example=example))

    async def health(request: Request) -> Response:
        found = {"status": "healthy", "products": len(shop.catalogue), "tasks": len(tasks), "split": tasks.split, "sessions": len(sessions)}
        return JSONResponse({**found, "version": importlib.metadata.version("agentgym")})

    return app(pages, Route("/", start), Route("/health", health))


def serve(
    *,
    data: str | None = None,
    products: int | None = None,
    size: Literal["mini", "full"] | None = None,
    goals: Literal["synthetic", "human", "both"] | None = None,
    split: str = "all",
    replay: str | None = None,
    draw: int | None = None,
    per_page: int = 10,
    nouns: str | None = None,
    host: str = "127.0.0.1",
    port: int = 3000,
    images: bool = False,
    limit: int = 100_000,
    idle: float = 3600.0,
) -> None:
    """Serve a shop over HTTP until the process is told to stop.

    The options up to `nouns` are those of WebShopEnv, the last three those of make_app. Raises ConfigError where the port is taken, DataError
    where the data cannot be read, EnvError where the options do not go together.
    """
    from .env import WebShopEnv

    with listen(host, port) as listener:
        env = WebShopEnv(data=data, products=products, size=size, goals=goals, split=split, replay=replay, draw=draw, per_page=per_page, nouns=nouns)
        shop, tasks = env.shop, env.task_set
        made = make_app(shop, tasks, limit=limit, idle=idle, images=images)
        where = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        what = f"{len(shop.catalogue):,} products, {len(tasks):,} tasks of the split {split!r}"
        print(f"webshop on {where}: {what}, {memory_mb():,.0f} MB of memory in use", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            http_server(made).run([listener])


def http_server(made: Starlette) -> uvicorn.Server:
    """Return what serves an application of ours.

    Connections stay open for longer than uvicorn's 5 s: where a slow client uses one again just when the server closes it, the client sees an error.
    """
    longest = 2 * LONGEST_ADDRESS
    config = uvicorn.Config(made, log_level="warning", access_log=False, timeout_keep_alive=75, h11_max_incomplete_event_size=longest)
    return uvicorn.Server(config)
