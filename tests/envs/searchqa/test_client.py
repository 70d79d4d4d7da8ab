"""The client against real servers: ours, and small ones that misbehave in the ways of real ones."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.searchqa.client import Client
from agentgym.envs.searchqa.index import Document, Hit
from agentgym.errors import ConfigError, EnvError

DOCUMENT = {"id": "1", "contents": "T\ntext"}
Answer = Callable[[dict[str, Any], int], Any]  # (request, its number) → status and body, or "drop" | "hang" | "trickle"


class Fake:
    """A server of which a function says how it answers each request."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.requests = answer, list[tuple[str, dict[str, Any]]]()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
                body = orjson.loads(await reader.readexactly(length))
                self.requests.append((head.split()[1], body))
                answer = self.answer(body, len(self.requests))
                if answer == "drop":
                    break
                if answer == "hang":
                    await asyncio.sleep(20)
                if answer == "trickle":
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
                    for _ in range(100):
                        writer.write(b" ")
                        await writer.drain()
                        await asyncio.sleep(0.05)
                status, content, *headers = answer
                data = content if isinstance(content, bytes) else orjson.dumps(content)
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\n{''.join(h + chr(13) + chr(10) for h in headers)}\r\n".encode() + data
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def faked(*answers: Answer) -> AsyncIterator[list[Fake]]:
    fakes = [Fake(a) for a in answers]
    servers = [await asyncio.start_server(f.handle, "127.0.0.1", 0) for f in fakes]
    for fake, server in zip(fakes, servers, strict=True):
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fakes
    finally:
        for server in servers:
            server.close()


def good(body: dict[str, Any], number: int) -> Any:
    return 200, {"result": [[{"document": DOCUMENT, "score": 2.5}]] * len(body["queries"])}


HITS = [[Hit(Document("1", "T\ntext"), 2.5)]]


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(test(), 20))  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["search_r1", "single", "flashrag"])
def test_dialects_find_the_same(server: Any, dialect: Any) -> None:
    async def search() -> list[list[Hit]]:
        client = Client([server.url], dialect=dialect, topk=2)
        found = await client.search(["number7x violin", "zebra", "number9x"])
        assert await client.search([]) == []
        assert [len(h) for h in await client.search(["violin"], 5)] == [5]
        await client.close()
        return found

    found = run(search)
    assert [[h.document.id for h in hits] for hits in found] == [["7", "10"], [], ["9"]]
    assert found[0][0].document.title == '"Page 7"' and found[0][0].score > found[0][1].score > 0


@pytest.mark.parametrize(
    ("dialect", "sent", "answer"),
    [
        ("search_r1", ("/retrieve", {"queries": ["q"], "topk": 3, "return_scores": True}), {"result": [[{"document": DOCUMENT, "score": 2.5}]]}),
        ("single", ("/retrieve", {"query": "q", "topk": 3, "return_scores": True}), {"result": [[{"document": DOCUMENT, "score": 2.5}]]}),
        ("flashrag", ("/batch_search", {"query": ["q"], "top_n": 3, "return_score": True}), [[[DOCUMENT]], [[2.5]]]),
    ],
)
def test_what_is_sent(dialect: Any, sent: Any, answer: Any) -> None:
    async def test() -> None:
        async with faked(lambda body, n: (200, answer)) as [fake]:
            assert await Client([fake.url], dialect=dialect).search(["q"]) == HITS
            assert fake.requests == [sent]

    run(test)


@pytest.mark.parametrize(
    ("item", "document", "score"),
    [
        ({"document": {"title": "T", "text": "text", "contents": "T\ntext"}, "score": 1}, Document("", "T\ntext"), 1.0),
        ({"document": {"title": "T", "text": "text", "id": 4}, "score": 1}, Document("4", "T\ntext"), 1.0),
        (DOCUMENT, Document("1", "T\ntext"), 0.0),
        ({**DOCUMENT, "score": 3}, Document("1", "T\ntext"), 3.0),
    ],
)
def test_shapes_of_documents(item: Any, document: Document, score: float) -> None:
    async def test() -> None:
        async with faked(lambda body, n: (200, {"result": [[item] * 5, []]})) as [fake]:
            assert await Client([fake.url]).search(["a", "b"]) == [[Hit(document, score)] * 3, []]  # no more than topk

    run(test)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>", r"no result.*'<html>'.*expected \{\"result\""),
        ({"results": []}, "KeyError: 'result'"),
        ({"result": [[DOCUMENT]] * 2}, "2 results for 1 queries"),
        ({"result": [DOCUMENT]}, "no result"),
        ({"result": [[{"document": {"id": "1"}}]]}, "KeyError: 'text'"),
        ({"result": [[{"id": "1", "contents": 3}]]}, "contents of a document are int"),
        ({"result": None}, "TypeError"),
        ([], "TypeError"),
    ],
)
def test_answers_that_are_no_result(content: Any, said: str) -> None:
    async def test() -> None:
        async with faked(lambda body, n: (200, content)) as [fake]:
            with pytest.raises(EnvError, match=said):
                await Client([fake.url]).search(["q"])
            assert len(fake.requests) == 1

    run(test)


def test_flashrag_scores_must_match() -> None:
    async def test() -> None:
        async with faked(lambda body, n: (200, [[[DOCUMENT]], [[1.0, 2.0]]])) as [fake]:
            with pytest.raises(EnvError, match=r"no result .*dialect 'flashrag'"):
                await Client([fake.url], dialect="flashrag").search(["q"])

    run(test)


@pytest.mark.parametrize("trouble", ["drop", (500, b"oops"), (503, b"", "retry-after: 0"), (429, b"slowly"), (502, b"")])
def test_tries_again(trouble: Any) -> None:
    async def test() -> None:
        async with faked(lambda body, n: trouble if n < 4 else good(body, n)) as [fake]:
            assert await Client([fake.url], backoff=0.01).search(["q"]) == HITS
            assert len(fake.requests) == 4

    run(test)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("drop", r"after 3 tries: http://127.*/retrieve: RemoteProtocolError.*Is the server running\? `agentgym serve"),
        ("hang", "no answer within 0.2 s"),
        ("trickle", "no answer within 0.2 s"),
        ((500, b"out of memory"), "HTTP 500: 'out of memory'"),
    ],
)
def test_gives_up_with_an_error(trouble: Any, said: str) -> None:
    async def test() -> None:
        async with faked(lambda body, n: trouble) as [fake]:
            with pytest.raises(EnvError, match=said):
                await Client([fake.url], backoff=0.01, retries=2, timeout=0.2).search(["q"])
            assert len(fake.requests) == 3

    run(test)


def test_a_closed_port() -> None:
    with pytest.raises(EnvError, match=r"after 1 try: http://127\.0\.0\.1:9/retrieve: ConnectError"):
        asyncio.run(Client(["http://127.0.0.1:9"], retries=0).search(["q"]))


@pytest.mark.parametrize("dialect", ["search_r1", "single"])
def test_a_refusal_is_not_tried_again(dialect: Any) -> None:
    async def test() -> None:
        async with faked(lambda body, n: (422, {"error": "topk too large"})) as [fake]:
            with pytest.raises(EnvError, match=r"refused the request .*HTTP 422: .*topk too large"):
                await Client([fake.url], dialect=dialect).search(["q"])
            assert len(fake.requests) == 1

    run(test)


def test_servers_take_turns_and_a_failed_one_is_passed_over() -> None:
    async def test() -> None:
        async with faked(good, lambda body, n: "drop", good) as fakes:
            client = Client([f.url for f in fakes], backoff=5)  # a pause would be noticed: the next server is asked at once
            for _ in range(12):
                assert await client.search(["q"]) == HITS
            counts = [len(f.requests) for f in fakes]
            assert counts[1] == 1 and counts[0] + counts[2] == 12 and min(counts[0], counts[2]) >= 3

    run(test)


def test_all_servers_down_names_all() -> None:
    async def test() -> None:
        async with faked(lambda body, n: "drop", lambda body, n: (500, b"broken")) as fakes:
            with pytest.raises(EnvError) as e:
                await Client([f.url for f in fakes], backoff=0.01).search(["q"])
            assert all(f.url in str(e.value) for f in fakes) and "broken" in str(e.value)
            assert sum(len(f.requests) for f in fakes) == 5 and min(len(f.requests) for f in fakes) >= 2

    run(test)


def test_one_client_in_several_loops(server: Any) -> None:
    client = Client([server.url])
    found: list[str] = []

    def loop(i: int) -> None:
        async def search() -> None:
            for j in range(10):
                found.append((await client.search([f"number{10 * i + j}x"]))[0][0].document.id)

        asyncio.run(search())

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(map(int, found)) == list(range(30))
    assert asyncio.run(pickle.loads(pickle.dumps(client)).search(["number3x"]))[0][0].document.id == "3"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"servers": ["localhost:8000"]}, "is no address; expected something like http://localhost:8000"),
        ({"servers": []}, "no server"),
        ({"dialect": "search-r1"}, "Did you mean 'search_r1'"),
        ({"timeout": 0}, "timeout > 0"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Client(**{"servers": ["http://localhost:1"], **options})


def test_wrong_arguments() -> None:
    client = Client("http://localhost:1")
    with pytest.raises(TypeError, match="list of queries"):
        asyncio.run(client.search("q"))
    with pytest.raises(ValueError, match="topk is 0"):
        asyncio.run(client.search(["q"], 0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=40), max_size=5))
def test_any_text_can_be_sent(server: Any, queries: list[str]) -> None:
    assert len(asyncio.run(Client([server.url], retries=0).search(queries))) == len(queries)
