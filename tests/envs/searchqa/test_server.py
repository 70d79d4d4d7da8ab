"""The server over real connections: three dialects, bad input, load, restarts, and what the command says when it cannot start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentgym.envs.searchqa.client import Client
from agentgym.envs.searchqa.index import Index, open_retriever
from agentgym.envs.searchqa.server import serve
from agentgym.errors import ConfigError, DataError

Post = Callable[..., httpx.Response]


@pytest.fixture
def post(server: Any) -> Post:
    """Return a function that posts JSON (or bytes) to the server."""

    def send(path: str, body: Any) -> httpx.Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx.post(server.url + path, timeout=20, **content)

    return send


def test_search_r1_dialect(post: Post) -> None:
    found = post("/retrieve", {"queries": ["number7x", "number8x violin"], "topk": 2, "return_scores": True}).json()
    assert [len(r) for r in found["result"]] == [1, 2]
    assert found["result"][0][0]["document"] == {"id": "7", "contents": '"Page 7"\nAbout the copper number7x, very very old.'}
    assert found["result"][0][0]["score"] > 1
    # Without scores: plain documents. Search-R1's own server answers 500, and wrong data for exactly two queries.
    for queries in (["number7x"], ["number7x", "number8x"], ["number7x", "number8x", "zebra"]):
        result = post("/retrieve", {"queries": queries}).json()["result"]
        assert [[d["id"] for d in r] for r in result] == [["7"], ["8"], []][: len(queries)]


@pytest.mark.parametrize("topk", [0, None])
def test_default_topk(post: Post, topk: int | None) -> None:
    assert [len(r) for r in post("/retrieve", {"queries": ["violin"], "topk": topk}).json()["result"]] == [3]


def test_no_queries(post: Post) -> None:
    assert post("/retrieve", {"queries": []}).json() == {"result": []}
    assert post("/batch_search", {"query": []}).json() == []
    assert post("/batch_search", {"query": [], "return_score": True}).json() == [[], []]


def test_single_dialect(post: Post) -> None:
    [[hit]] = post("/retrieve", {"query": "number5x", "topk": 3, "return_scores": True}).json()["result"]
    assert hit["document"]["id"] == "5" and hit["score"] > 0


def test_flashrag_dialect(post: Post) -> None:
    documents, scores = post("/search", {"query": "number5x glacier", "top_n": 2, "return_score": True}).json()
    assert [d["id"] for d in documents] == ["5", "20"] and scores[0] > scores[1] > 0
    assert post("/search", {"query": "number5x"}).json() == documents[:1]
    batch, values = post("/batch_search", {"query": ["number5x glacier", "zebra"], "top_n": 2, "return_score": True}).json()
    assert batch == [documents, []] and values == [scores, []]
    assert post("/batch_search", {"query": ["number5x", "zebra"]}).json() == [documents[:1], []]


def test_health(server: Any) -> None:
    found = httpx.get(f"{server.url}/health").json()
    assert found["status"] == "healthy" and found["documents"] == 400 and found["waiting"] == 0 and found["version"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/retrieve", b"{", 400, "no JSON"),
        ("/retrieve", b"\xff", 400, "no JSON"),
        ("/retrieve", b"", 400, "no JSON"),
        ("/retrieve", ["x"], 422, "must be a JSON object; got a list"),
        ("/retrieve", {"queries": "one text"}, 422, "'queries' must be a list of texts; got a text ('one text')"),
        ("/retrieve", {"queries": ["x", 3]}, 422, "item 1 is a number (3)"),
        ("/retrieve", {"query": ["x"]}, 422, "'query' must be a text; got a list"),
        ("/retrieve", {"queries": None}, 422, "got nothing"),
        ("/retrieve", {}, 422, "either 'queries' (a list of texts) or 'query'"),
        ("/retrieve", {"queries": ["x"], "query": "x"}, 422, "either"),
        ("/retrieve", {"queries": ["x"], "topk": -1}, 422, "'topk' must be a whole number from 1 to 1000"),
        ("/retrieve", {"queries": ["x"], "topk": 1001}, 422, "got 1001"),
        ("/retrieve", {"queries": ["x"], "topk": "3"}, 422, "got '3'"),
        ("/retrieve", {"queries": ["x"], "topk": True}, 422, "got True"),
        ("/retrieve", {"queries": ["x"], "return_scores": 1}, 422, "'return_scores' must be true or false; got a number (1)"),
        ("/retrieve", {"queries": ["x"], "top_k": 5}, 422, "unknown key 'top_k', much like 'topk'"),
        ("/retrieve", {"queries": ["x"] * 1025}, 413, "1025 queries in one request; at most 1024"),
        ("/retrieve", {"queries": ["x" * (17 << 20)]}, 413, "larger than 16 MiB"),
        ("/search", {"query": ["x"]}, 422, "'query' must be a text"),
        ("/batch_search", {"query": "x"}, 422, "'query' must be a list"),
        ("/batch_search", {"query": ["x"], "top_n": 1.5}, 422, "'top_n' must be"),
        ("/nothing", {}, 404, "POST /nothing is not served here; there are POST /retrieve"),
        ("/health", {}, 405, "POST /health is not served here"),
    ],
)
def test_bad_requests(post: Post, path: str, body: Any, status: int, said: str) -> None:
    answer = post(path, body)
    assert answer.status_code == status and said in answer.json()["error"]


def test_unknown_keys_do_no_harm(post: Post) -> None:
    assert post("/retrieve", {"queries": ["x"], "user": "me", "model": "wiki"}).json() == {"result": [[]]}


def test_many_connections_beside_large_batches(server: Any) -> None:
    """32 connections at once get what they asked for, and health goes on answering while large batches are searched."""

    async def run() -> tuple[list[list[list[str]]], int]:
        client, healthy = Client([server.url], connections=32, timeout=60), 0
        big = [asyncio.create_task(client.search([f"old violin glacier number{i}x" for i in range(1024)], 100)) for _ in range(2)]
        asked = [asyncio.create_task(client.search([f"number{i}x", "zebra"], 1)) for i in range(200)]
        async with httpx.AsyncClient(timeout=30) as http:
            while not all(t.done() for t in big):
                await asyncio.sleep(0.01)
                waiting = (await http.get(f"{server.url}/health")).json()["waiting"]
                healthy += waiting > 0
        found = [[[h.document.id for h in hits] for hits in await t] for t in asked]
        await client.close()
        return found, healthy

    found, healthy = asyncio.run(run())
    assert found == [[[str(i)], []] for i in range(200)]
    assert healthy >= 3  # a loop that waits for its searches never answers while one runs


def test_killed_and_started_again(launch: Callable[..., Any]) -> None:
    """The client goes on trying, and loses nothing."""
    server = launch()

    async def run() -> list[str]:
        client, found = Client([server.url], retries=30, backoff=0.2, timeout=5), []
        for i in range(60):
            if i == 20:
                server.kill()
                server.start()  # takes a while: the requests in between meet a closed port
            [hits] = await client.search([f"number{i}x"], 1)
            found.append(hits[0].document.id)
        await client.close()
        return found

    assert asyncio.run(run()) == [str(i) for i in range(60)]


def test_two_workers_share_a_port(launch: Callable[..., Any]) -> None:
    server = launch(workers=2)
    [[hit]] = asyncio.run(Client([server.url]).search(["number3x"]))
    assert hit.document.id == "3"


def test_what_stops_a_start(tmp_path: Path, corpus: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1 port \d+: another program listens there; .*--port"):
            serve(str(corpus), port=taken.getsockname()[1])
    with pytest.raises(DataError, match=r"cannot read the corpus .*none\.jsonl"):
        serve(str(tmp_path / "none.jsonl"), port=0)
    with pytest.raises(ConfigError, match=r"unknown kind of search 'densse'\. Did you mean 'dense'\?"):
        serve(str(corpus), port=0, kind="densse")
    with pytest.raises(ConfigError, match="BM25 has no model"):
        serve(str(corpus), port=0, model="x")
    with pytest.raises(ConfigError, match="topk"):
        serve(str(corpus), port=0, topk=0)


def test_it_says_where_it_listens(launch: Callable[..., Any], corpus: Path) -> None:
    server = launch()
    line = server.process.stdout.readline()
    assert f"on {server.url}: 400 documents of {corpus}" in line and "MB" in line
    assert len(Index.open(corpus)) == 400


def test_the_embedded_corpus_is_served_by_its_name() -> None:
    index = open_retriever("factbook")
    assert index.search(["highest point of Malaysia"], 1)[0][0].document.title == '"Malaysia: Elevation"' and len(index) == 14_730
    with pytest.raises(ConfigError, match="write it to a file for a dense one"):
        open_retriever("factbook", "dense")
