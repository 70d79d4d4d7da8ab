"""A retrieval server that speaks three dialects: Search-R1 (verl), verl-agent (SkyRL), FlashRAG.

    POST /retrieve      {"queries": ["…"], "topk": 3, "return_scores": true}   → {"result": [[{"document": …, "score": …}, …], …]}
    POST /retrieve      {"query": "…", …}                                      → the same with one list
    POST /search        {"query": "…", "top_n": 3, "return_score": true}       → [documents, scores], or documents
    POST /batch_search  {"query": ["…"], …}                                    → [[documents, …], [scores, …]], or [documents, …]
    GET  /health        → {"status": "healthy", "documents": …, "version": …, "waiting": …}

Without scores `/retrieve` gives plain documents. topk 0 or null is the server's default. What is wrong with a request is said in
{"error": "…"}: 400 no JSON, 413 too much, 422 a wrong value, 503 too many requests wait. Unknown keys are ignored, so that other
clients' extras do no harm, except those that look like a misspelt one.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentgym.errors import ConfigError
from agentgym.listen import listen, memory_mb

try:
    import orjson
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from uvicorn.supervisors import Multiprocess
except ImportError as e:
    raise ConfigError(f"the search server needs further packages ({e}): pip install starlette orjson 'uvicorn[standard]'") from e

from .index import Hit, Retriever, open_retriever

_MAX_BODY = 16 << 20  # bytes


class _Refused(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Asked(NamedTuple):
    """What a request asks for."""

    queries: list[str]
    topk: int
    scores: bool
    batch: bool


Shape = Callable[[list[list[Hit]], _Asked], Any]


class Service:
    """Answers requests in threads, so that the event loop never waits for a search.

    topk         documents for a request that does not say
    max_topk     most documents a query may ask for
    max_batch    most queries in a request
    max_waiting  requests that may be in the works at once; further ones are told 503
    threads      searches at once; None: one per core, at most 4 (numpy holds Python's lock for much of a search)
    """

    def __init__(self, retriever: Retriever, *, topk: int, max_topk: int, max_batch: int, max_waiting: int, threads: int | None) -> None:
        if not 1 <= topk <= max_topk or max_batch < 1 or max_waiting < 1 or (threads is not None and threads < 1):
            raise ConfigError("search server: 1 <= topk <= max_topk; max_batch, max_waiting and threads must be >= 1")
        self.retriever, self.topk, self.max_topk, self.max_batch, self.max_waiting = retriever, topk, max_topk, max_batch, max_waiting
        self.waiting = 0
        self._pool = ThreadPoolExecutor(threads or min(4, os.cpu_count() or 1), thread_name_prefix="search")

    async def answer(self, request: Request, read: Callable[[dict[str, Any]], _Asked], shape: Shape) -> Response:
        """Answer one request: `read` finds what is asked, `shape` makes of the hits what the dialect wants."""
        try:
            asked = read(await _json(request))
            if self.waiting >= self.max_waiting:
                raise _Refused(503, f"{self.waiting} requests wait already; try again later, or start further servers")
        except _Refused as e:
            headers = {"retry-after": "1"} if e.status == 503 else None
            return _reply({"error": str(e)}, e.status, headers)
        self.waiting += 1
        try:
            body = await asyncio.get_running_loop().run_in_executor(self._pool, self._search, asked, shape)
        except Exception as e:
            traceback.print_exc(file=sys.stderr)
            return _reply({"error": f"the search failed: {type(e).__name__}: {e}"}, 500)
        finally:
            self.waiting -= 1
        return Response(body, media_type="application/json")

    def _search(self, asked: _Asked, shape: Shape) -> bytes:
        hits = self.retriever.search(asked.queries, asked.topk) if asked.queries else []
        return orjson.dumps(shape(hits, asked))  # documents and hits are dataclasses, which it writes as objects

    async def retrieve(self, request: Request) -> Response:
        """Search-R1's and verl-agent's route."""

        def read(body: dict[str, Any]) -> _Asked:
            known = ("queries", "query", "topk", "return_scores")
            _misspelt(body, known)
            if ("queries" in body) == ("query" in body):
                raise _Refused(422, f"expected either 'queries' (a list of texts) or 'query' (one text); got the keys {sorted(body)}")
            return self._asked(body, "queries" if "queries" in body else "query", "queries" in body, "topk", "return_scores")

        def shape(hits: list[list[Hit]], asked: _Asked) -> Any:
            return {"result": hits if asked.scores else [[h.document for h in found] for found in hits]}

        return await self.answer(request, read, shape)

    async def flashrag(self, request: Request) -> Response:
        """FlashRAG's two routes."""
        batch = request.url.path.rstrip("/").endswith("batch_search")

        def read(body: dict[str, Any]) -> _Asked:
            _misspelt(body, ("query", "top_n", "return_score"))
            return self._asked(body, "query", batch, "top_n", "return_score")

        def shape(hits: list[list[Hit]], asked: _Asked) -> Any:
            documents = [[h.document for h in found] for found in hits]
            scores = [[h.score for h in found] for found in hits]
            if not asked.batch:
                return [documents[0], scores[0]] if asked.scores else documents[0]
            return [documents, scores] if asked.scores else documents

        return await self.answer(request, read, shape)

    async def health(self, request: Request) -> Response:
        """Say that the server is there, what it serves, and how many requests wait."""
        found = {"status": "healthy", "documents": len(self.retriever), "retriever": type(self.retriever).__name__, "topk": self.topk}
        return _reply({**found, "version": importlib.metadata.version("agentgym"), "waiting": self.waiting})

    def _asked(self, body: dict[str, Any], queries: str, batch: bool, topk: str, scores: str) -> _Asked:
        texts = body.get(queries)
        if batch:
            if not isinstance(texts, list):
                raise _Refused(422, f"{queries!r} must be a list of texts; got {_kind(texts)}")
            if wrong := [i for i, t in enumerate(texts) if not isinstance(t, str)]:
                raise _Refused(422, f"{queries!r} must be a list of texts; item {wrong[0]} is {_kind(texts[wrong[0]])}")
            if len(texts) > self.max_batch:
                raise _Refused(413, f"{len(texts)} queries in one request; at most {self.max_batch} are allowed: send them in parts")
        elif isinstance(texts, str):
            texts = [texts]
        else:
            raise _Refused(422, f"{queries!r} must be a text; got {_kind(texts)}")
        k = body.get(topk)
        if isinstance(k, bool) or not (k is None or (isinstance(k, int) and 0 <= k <= self.max_topk)):
            raise _Refused(422, f"{topk!r} must be a whole number from 1 to {self.max_topk}, or 0 or null for the default {self.topk}; got {k!r:.40}")
        wanted = body.get(scores)
        if not (wanted is None or isinstance(wanted, bool)):
            raise _Refused(422, f"{scores!r} must be true or false; got {_kind(wanted)}")
        return _Asked(texts, k or self.topk, bool(wanted), batch)


def make_app(
    retriever: Retriever, *, topk: int = 3, max_topk: int = 1000, max_batch: int = 1024, max_waiting: int = 1024, threads: int | None = None
) -> Starlette:
    """Return an ASGI application that serves a retriever; the options are those of Service."""
    service = Service(retriever, topk=topk, max_topk=max_topk, max_batch=max_batch, max_waiting=max_waiting, threads=threads)
    return Starlette(
        routes=[
            Route("/retrieve", service.retrieve, methods=["POST"]),
            Route("/search", service.flashrag, methods=["POST"]),
            Route("/batch_search", service.flashrag, methods=["POST"]),
            Route("/health", service.health),
        ],
        exception_handlers={404: _no_route, 405: _no_route},
    )


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    routes = "POST /retrieve, POST /search, POST /batch_search, GET /health"
    return _reply({"error": f"{request.method} {request.url.path} is not served here; there are {routes}"}, status)


async def _json(request: Request) -> dict[str, Any]:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY:
                raise _Refused(413, f"the request is larger than {_MAX_BODY >> 20} MiB; send the queries in parts")
    except ClientDisconnect:
        raise _Refused(400, "the client went away") from None
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise _Refused(400, f"the request is no JSON: {e}") from None
    if not isinstance(found, dict):
        raise _Refused(422, f"the request must be a JSON object; got {_kind(found)}")
    return found


def _misspelt(body: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in body.keys() - set(known):
        if close := difflib.get_close_matches(key, [*known, "top_n", "topk"], n=1, cutoff=0.8):
            raise _Refused(422, f"unknown key {key!r}, much like {close[0]!r}; this route knows {', '.join(known)}")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "nothing"}
    shown = repr(value)
    return f"{names[type(value)]} ({shown[:60]}{'…' if len(shown) > 60 else ''})"


def _reply(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def serve(
    corpus: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    kind: str = "bm25",
    model: str | None = None,
    topk: int = 3,
    max_batch: int = 1024,
    threads: int | None = None,
    workers: int = 1,
    cache: Path | None = None,
) -> None:
    """Serve a corpus over HTTP until the process is told to stop.

    kind     bm25 | dense; `model` is a dense encoder's name or folder
    threads  searches at once in a process; None: one per core, at most 4
    workers  processes; they share the index's memory
    Raises ConfigError where the port is taken, DataError where the corpus cannot be read.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}; expected at least 1")
    with listen(host, port) as listener:
        retriever = open_retriever(corpus, kind, model=model, cache=cache)
        options: dict[str, Any] = {"topk": topk, "max_batch": max_batch, "threads": threads}
        where = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        print(f"search server ({kind}) on {where}: {len(retriever):,} documents of {corpus}, {memory_mb():,.0f} MB of memory in use", flush=True)
        if workers == 1:
            config = uvicorn.Config(make_app(retriever, **options), log_level="warning")
            uvicorn.Server(config).run([listener])
            return
        # Each process opens the index by its path: what the files hold is in memory once.
        factory = partial(_worker, corpus, kind, model, cache, options)
        config = uvicorn.Config(factory, factory=True, log_level="warning", workers=workers)
        Multiprocess(config, sockets=[listener]).run()


def _worker(corpus: str, kind: str, model: str | None, cache: Path | None, options: dict[str, Any]) -> Starlette:
    return make_app(open_retriever(corpus, kind, model=model, cache=cache), **options)
