"""Asks retrieval servers. A server that fails is an error that says so, never an empty result."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import httpx

from agentgym.errors import ConfigError, EnvError, did_you_mean

from .corpus import Document, Hit

Dialect = Literal["search_r1", "single", "flashrag"]
_ROUTES: dict[str, str] = {"search_r1": "/retrieve", "single": "/retrieve", "flashrag": "/batch_search"}
_RETRY = {408, 425, 429, 500, 502, 503, 504}
_LONGEST_PAUSE_S = 30.0


class _Pool(NamedTuple):
    """The connections that one event loop opened."""

    http: httpx.AsyncClient
    gate: asyncio.Semaphore


class _Failed(Exception):
    """A try that may be repeated; `pause` is how many seconds the server asks to wait."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class Client:
    """Searches through one or several servers of the same corpus.

    servers      addresses, such as http://localhost:8000; the dialect's route is added where an address has no path
    dialect      search_r1: `/retrieve` with all queries at once (Search-R1, verl); single: one query a request (verl-agent, SkyRL);
                 flashrag: `/batch_search`
    topk         documents for each query, where `search` is not told otherwise
    timeout      seconds for one whole exchange, waiting for a free connection not counted
    retries      further tries after a lost connection, a time-out or an answer 408, 425, 429, 500, 502, 503, 504; each goes to the next server
    backoff      seconds before servers that have all failed are asked again; doubled each time, at most 30
    connections  requests in flight at once

    May be used by several event loops at once (each has connections of its own), and pickled. Proxies that environment variables name are
    not used: these servers are near.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        dialect: Dialect = "search_r1",
        topk: int = 3,
        timeout: float = 10.0,
        retries: int = 4,
        backoff: float = 0.5,
        connections: int = 64,
    ) -> None:
        if dialect not in _ROUTES:
            raise ConfigError(f"unknown dialect {dialect!r}.{did_you_mean(str(dialect), _ROUTES)} Known: {', '.join(get_args(Dialect))}")
        if topk < 1 or timeout <= 0 or retries < 0 or backoff < 0 or connections < 1:
            raise ConfigError("search client: topk and connections must be >= 1, timeout > 0, retries and backoff >= 0")
        self.servers = [_address(s, dialect) for s in ([servers] if isinstance(servers, str) else servers)]
        if not self.servers:
            raise ConfigError("search client: no server is given; expected addresses such as http://localhost:8000")
        self.dialect, self.topk, self.timeout, self.retries, self.backoff, self.connections = dialect, topk, timeout, retries, backoff, connections
        self._prepare()

    def _prepare(self) -> None:
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()
        self._turn = itertools.count()
        self._failed_at: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    async def search(self, queries: Sequence[str], topk: int | None = None) -> list[list[Hit]]:
        """Return for each query its documents, the best first; none is a result too. A score is 0 where a server gives none.

        Raises EnvError that names the server and what it did: after all tries, or at once when it refuses the request.
        """
        if isinstance(queries, str):
            raise TypeError(f"search takes a list of queries; got the text {queries[:80]!r}: put it into a list")
        k = self.topk if topk is None else topk
        if k < 1:
            raise ValueError(f"topk is {k}; expected at least 1")
        texts = [q.encode("utf-8", "replace").decode() for q in queries]  # half a surrogate pair cannot be sent
        if not texts:
            return []
        if self.dialect != "single":
            return await self._ask(texts, k)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_alone(self._ask([text], k))) for text in texts]
        answers = [task.result() for task in tasks]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [answer[0] for answer in answers if not isinstance(answer, Exception)]

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.http.aclose()

    async def _ask(self, texts: list[str], topk: int) -> list[list[Hit]]:
        body = _body(self.dialect, texts, topk)
        delay, reasons = self.backoff, dict[str, str]()
        for attempt in range(self.retries + 1):
            url = self._server(reasons if len(reasons) < len(self.servers) else {})
            try:
                answer = await self._exchange(url, body)
                hits = _results(self.dialect, answer, len(texts), topk, url)
            except _Failed as e:
                reasons[url], self._failed_at[url] = str(e), time.monotonic()
                if attempt < self.retries and len(reasons) == len(self.servers):
                    await asyncio.sleep(max(delay, e.pause))
                    delay = min(_LONGEST_PAUSE_S, 2 * delay)
                continue
            self._failed_at.pop(url, None)
            return hits
        tries = f"{self.retries + 1} {'try' if self.retries == 0 else 'tries'}"
        said = "; ".join(f"{u}: {r}" for u, r in reasons.items())
        raise EnvError(f"search failed after {tries}: {said}. Is the server running? `agentgym serve search --corpus FILE --port PORT` starts one")

    def _server(self, tried: dict[str, str]) -> str:
        """Return the next server in turn: one that this request has not tried; rather one that has not just failed for another."""
        start, n = next(self._turn), len(self.servers)
        order = [self.servers[(start + i) % n] for i in range(n)]
        left = [s for s in order if s not in tried]
        recent = time.monotonic() - max(1.0, 4 * self.backoff)
        return next((s for s in left if self._failed_at.get(s, -1e9) < recent), left[0])

    async def _exchange(self, url: str, body: dict[str, Any]) -> httpx.Response:
        """Return an answer of status 200. Raises _Failed for what may be repeated, EnvError for a refusal."""
        pool = self._pool()
        try:
            # httpx bounds each read; a server that trickles bytes would outlive that, so the whole exchange is bounded too.
            async with pool.gate, asyncio.timeout(self.timeout):
                response = await pool.http.post(url, json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise _Failed(f"no answer within {self.timeout:g} s") from None
        except httpx.HTTPError as e:
            raise _Failed(f"{type(e).__name__}: {e}") from e
        if response.status_code == 200:
            return response
        reason = f"HTTP {response.status_code}: {response.text[:300]!r}"
        if response.status_code in _RETRY:
            raise _Failed(reason, _retry_after(response))
        raise EnvError(f"{url} refused the request (dialect {self.dialect!r}): {reason}")

    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:  # connections cannot outlive the loop that opened them
            limits = httpx.Limits(max_connections=self.connections, max_keepalive_connections=self.connections)
            pool = _Pool(httpx.AsyncClient(timeout=self.timeout, limits=limits, trust_env=False), asyncio.Semaphore(self.connections))
            self._pools[loop] = pool
        return pool


async def _alone(asked: Any) -> list[list[Hit]] | EnvError:
    """Wait for an answer; an error is returned, so that the caller sees it and not a group of one."""
    try:
        answer: list[list[Hit]] = await asked
        return answer
    except EnvError as e:
        return e


def _address(server: str, dialect: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"search server {server!r} is no address; expected something like http://localhost:8000")
    return server if parts.path.strip("/") else server.rstrip("/") + _ROUTES[dialect]


def _body(dialect: str, texts: list[str], topk: int) -> dict[str, Any]:
    if dialect == "flashrag":
        return {"query": texts, "top_n": topk, "return_score": True}
    asked: dict[str, Any] = {"query": texts[0]} if dialect == "single" else {"queries": texts}
    return asked | {"topk": topk, "return_scores": True}


def _results(dialect: str, response: httpx.Response, queries: int, topk: int, url: str) -> list[list[Hit]]:
    """Return what an answer holds. Raises EnvError for one of another shape."""
    try:
        answer = response.json()
        if dialect == "flashrag":
            documents, scores = answer
            lists = [list(zip(d, s, strict=True)) for d, s in zip(documents, scores, strict=True)]
            hits = [[Hit(_document(d), float(s)) for d, s in found[:topk]] for found in lists]
        else:
            hits = [[_hit(item) for item in found[:topk]] for found in answer["result"]]
        if len(hits) != queries:
            raise ValueError(f"{len(hits)} results for {queries} queries")
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        wanted = "[[document, …], …], [[score, …], …]" if dialect == "flashrag" else '{"result": [[{"document": …, "score": …}, …], …]}'
        raise EnvError(
            f"{url} answered with something that is no result ({type(e).__name__}: {e}): {response.text[:300]!r}; "
            f"expected {wanted} (dialect {dialect!r})"
        ) from e
    return hits


def _hit(item: dict[str, Any]) -> Hit:
    if "document" in item:
        return Hit(_document(item["document"]), float(item.get("score") or 0.0))
    return Hit(_document(item), float(item.get("score") or 0.0))


def _document(row: dict[str, Any]) -> Document:
    contents = row.get("contents")
    if contents is None:
        contents = f"{row.get('title') or ''}\n{row['text']}"
    if not isinstance(contents, str):
        raise ValueError(f"the contents of a document are {type(contents).__name__}, not text")
    return Document(str(row.get("id", "")), contents)


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds that the server asks to wait, at most 30; a date instead of a number counts as nothing."""
    try:
        return min(_LONGEST_PAUSE_S, max(0.0, float(response.headers.get("retry-after", 0))))
    except ValueError:
        return 0.0
