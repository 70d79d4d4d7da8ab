"""The server over real connections: purchases by links and forms, hostile input, sessions of their own, many at once, how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from agentgym.envs.webshop import address, catalogue, render
from agentgym.envs.webshop.env import WebShopEnv
from agentgym.envs.webshop.goals import Drawn
from agentgym.envs.webshop.nouns import Nouns
from agentgym.envs.webshop.server import LONGEST_ADDRESS, http_server, make_app, serve
from agentgym.envs.webshop.sessions import Sessions, Visitor, choose
from agentgym.envs.webshop.shop import Shop
from agentgym.envs.webshop.tasks import Tasks
from agentgym.envs.webshop.types import Page, Place, Product, Wish
from agentgym.errors import ConfigError, EnvError

Get = Callable[..., httpx.Response]


@contextlib.contextmanager
def running(application: Any) -> Iterator[str]:
    """Serve an application from a thread; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = http_server(application)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def env() -> WebShopEnv:
    return WebShopEnv(products=200, size="full", split="all", max_steps=None)


@pytest.fixture(scope="module")
def base(env: WebShopEnv) -> Iterator[str]:
    with running(make_app(env.shop, env.task_set)) as url:
        yield url


@pytest.fixture
def get(base: str) -> Iterator[Get]:
    with httpx.Client(base_url=base, follow_redirects=True, timeout=20) as client:
        yield client.get


def said(answer: httpx.Response) -> str:
    """The visible text of an answer."""
    return " ".join(unescape(re.sub(r"<title>.*?</title>|<script>.*?</script>|<[^>]*>", " ", answer.text, flags=re.S)).split())


def score(answer: httpx.Response) -> float:
    found = re.search(r'id="reward".*?<pre>(.*?)</pre>', answer.text, re.S)
    assert found is not None, said(answer)
    return float(found[1])


def links(page: httpx.Response) -> dict[str, str]:
    """Where buttons, links to products, and options lead, by their lower-case text."""
    patterns = (r'value="(?P<text>[^"]*)" data-url="(?P<to>[^"]*)"', r'class="product-link" href="(?P<to>[^"]*)">(?P<text>[^<]*)<')
    patterns += (r'<form action="(?P<to>[^"]*)"><button[^>]*>(?P<text>[^<]*)<',)
    return {unescape(m["text"]).lower(): unescape(m["to"]) for pattern in patterns for m in re.finditer(pattern, page.text)}


# ---- a purchase


def test_start_page_leads_to_a_session(get: Get) -> None:
    start = get("/")
    assert start.status_code == 200 and "200 products" in said(start)
    begin = re.search(r'class="begin" href="([^"]+)"', start.text)
    assert begin is not None and "Instruction:" in said(get(begin[1]))
    assert begin[1] not in get("/").text, "everybody gets a session of his own"
    examples = re.findall(r'<a href="(/[^"]+)"', start.text)
    assert len(examples) == 3 and all(get(example).status_code == 200 for example in examples)


def test_purchases_by_links_and_forms(base: str, env: WebShopEnv) -> None:
    """What a person does: posts the search, follows links and forms. The score is that of the text mode, and its parts are shown."""
    scores = []
    with httpx.Client(base_url=base, follow_redirects=True, timeout=20) as client:
        for task in env.tasks()[:6]:
            observation, info = env.reset(options={"task": task})
            expert, session, done = env.expert(), env._here, False
            page = client.get(f"/{quote(task, safe='')}")
            while not done:
                assert session.goal.instruction in said(page)
                action = expert.act(observation, info)
                observation, _, done, _, info = env.step(action)
                name, _, argument = action.removesuffix("]").partition("[")
                if name == "search":
                    page = client.post(f"/{quote(task, safe='')}", data={"search_query": argument.upper()})
                    assert [h.status_code for h in page.history] == [303]
                else:
                    page = client.get(links(page)[argument])
                assert page.status_code == 200 and render.url(address.place(page.url.raw_path.decode())[1], "") == render.url(session.place, "")
            assert session.reward_info is not None and score(page) == session.reward_info["reward"]
            assert "kind of product" in said(page) and session.goal.asin in said(page)
            scores.append(score(page))
    assert max(scores) == 1.0


def test_without_scripts_options_are_a_form(get: Get, env: WebShopEnv) -> None:
    product = next(p for p in env.shop.catalogue if len(p.options) > 1)
    (one, values), (two, others) = list(product.options.items())[:2]
    here = address.path("noscript", Place("item", ("x",), 2, product.asin, options=((one, values[0]),)))
    page = get(here, params={one: values[-1], two: others[0]})
    assert [h.status_code for h in page.history] == [303]
    chosen = {one: values[-1], two: others[0]}
    assert address.place(page.url.raw_path.decode())[1] == Place("item", ("x",), 2, product.asin, options=tuple(chosen.items()))
    assert re.findall(r'value="([^"]*)"[^>]* checked>', page.text) == [escaped(v) for n, v in chosen.items() for v in [v]]


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;").replace("'", "&#39;")


@pytest.mark.parametrize(
    "words",
    ["a/b", "c++ + d", "100% of", "who? #1", 'it\'s "new"', "größe ☕", "<script>alert(1)</script>", "a  b", " ", "..", ". .", "*..", "&amp;"],
)
def test_words_survive(base: str, words: str) -> None:
    with httpx.Client(base_url=base, follow_redirects=True) as client:
        page = client.post("/words", data={"search_query": words})
        assert page.status_code == 200 and "Page 1 (Total results" in said(page)
        assert address.place(page.url.raw_path.decode()) == ("words", Place("results", tuple(words.split(" "))))
        assert "<script>alert(1)" not in page.text
        further = client.get(links(page)["next >"])
        assert address.place(further.url.raw_path.decode()) == ("words", Place("results", tuple(words.split(" ")), 2))


def test_style_health_and_headers(get: Get) -> None:
    style = get("/static/style.css")
    assert style.headers["content-type"].startswith("text/css") and ".btn" in style.text and "url(" not in style.text and "@import" not in style.text
    health = get("/health").json()
    assert health["status"] == "healthy" and health["products"] == 200 and health["tasks"] > 100 and health["version"]
    for path in ("/", "/somebody", "/nothing/here"):
        assert "default-src 'none'" in get(path).headers["content-security-policy"]


# ---- sessions


def instruction(page: httpx.Response) -> str:
    found = re.search(r'id="instruction-text"><h4>(.*?)</h4>', page.text, re.S)
    assert found is not None
    return unescape(found[1])


def test_which_task_a_session_has(get: Get, env: WebShopEnv) -> None:
    tasks = env.tasks()
    for n in (0, 5, len(tasks) - 1):
        env.reset(options={"task": tasks[n]})
        for sid in (f"fixed_{n}", f"again_fixed_{n}", f"fixed_{n}_again", quote(tasks[n], safe="")):
            assert env._here.goal.instruction in instruction(get(f"/{sid}"))
    names = [f"someone{i}" for i in range(30)]
    first = [instruction(get(f"/{name}")) for name in names]
    assert [instruction(get(f"/{name}")) for name in names] == first and len(set(first)) > 15


def test_sessions_do_not_see_each_other(base: str, env: WebShopEnv) -> None:
    """Two sessions take turns, on the same pages; each has its own visited products and score, and the addresses of one do not change the other."""
    with httpx.Client(base_url=base, follow_redirects=True) as client:
        shown = client.post("/fixed_1_anna", data={"search_query": env.shop.catalogue.product(0).name})
        asin = next(name for name in links(shown) if name.startswith("b0"))
        client.get(links(shown)[asin])
        again = {sid: client.get(shown.url.path.replace("fixed_1_anna", sid)).text for sid in ("fixed_1_anna", "fixed_1_otto", "fixed_2_otto")}
        assert ["visited" in page for page in again.values()] == [True, False, False]
        done = {sid: client.get(address.path(sid, Place("done", asin=asin.upper()))) for sid in again}
        for sid, page in done.items():
            goals, number = choose(env.task_set, sid)
            assert score(page) == env.shop.buy(goals, goals.goal(number), asin.upper(), {})["reward"]
        client.get("/fixed_1_anna")  # back to the search: forgets what was visited
        assert "visited" not in client.get(shown.url.path).text


def visitors(env: WebShopEnv) -> Callable[[str], Visitor]:
    def new(sid: str) -> Visitor:
        goals, number = choose(env.task_set, sid)
        return Visitor(env.shop, goals, partial(goals.goal, number))

    return new


def test_old_sessions_go(env: WebShopEnv) -> None:
    made: list[str] = []
    sessions = Sessions(lambda sid: made.append(sid) or visitors(env)(sid), limit=3, idle=0.2)  # type: ignore[func-returns-value]
    for sid in "abcacd":  # at d, b is the one that was not used for the longest time
        sessions.find(sid)
    assert made == ["a", "b", "c", "d"] and len(sessions) == 3
    sessions.find("a")
    assert made == ["a", "b", "c", "d"]
    time.sleep(0.25)
    sessions.find("e")
    assert len(sessions) == 1 and made[-1] == "e"
    with pytest.raises(ConfigError, match="room"):
        Sessions(None, limit=0)


def test_a_session_is_small(env: WebShopEnv) -> None:
    """100,000 sessions that each saw a page and bought something take less than 2 kB each."""
    sessions, asin = Sessions(visitors(env)), env.shop.catalogue.product(0).asin
    tracemalloc.start()
    for i in range(500):
        visitor = sessions.find(f"session{i}")
        visitor.open(Place("item", ("x",), 1, asin))
    before = tracemalloc.get_traced_memory()[0]
    for i in range(500, 2500):
        visitor = sessions.find(f"session{i}")
        visitor.open(Place("item", ("x",), 1, asin))
        visitor.open(Place("done", asin=asin))
    each = (tracemalloc.get_traced_memory()[0] - before) / 2000
    tracemalloc.stop()
    assert each < 2000, each


def test_visited_products_are_forgotten_after_many(env: WebShopEnv) -> None:
    visitor = visitors(env)("s")
    asins = [p.asin for p in env.shop.catalogue]
    for i in range(450):
        visitor.open(Place("item", ("x",), 1, asins[i % len(asins)]))
        assert asins[i % len(asins)] in visitor.visited and len(visitor.visited) <= 200


# ---- what cannot be answered


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/no/such/page", 404, "no page of the shop"),
        ("/fixed_99999999", 404, "tasks, fixed_0 to fixed_"),
        ("/generated%2F99999999", 404, "no task 'generated/99999999'"),
        ("/nonsense%2F1", 404, "An id looks like"),
        ("/search_results/s/x/0", 404, "no page number"),
        ("/item_page/s/B0NOSUCH/x/1/{}", 404, "no product 'B0NOSUCH' among the 200"),
        ("/item_sub_page/s/B0NOSUCH/x/1/Features/{}", 404, "no product"),
        ("/done/s/B0NOSUCH/{}", 404, "no product"),
        ("/done/s/ASIN/{'color", 400, "names with values"),
        ("/done/s/ASIN/{'<script>': 'x'}", 400, "has no option"),
        ("/static/other.css", 404, "no page of the shop"),
        ("/favicon.ico", 404, "no name of a session"),
        ("/search_results/s/" + "x" * 4_001 + "/1", 414, "at most 4,000 characters"),
    ],
)
def test_refused(get: Get, env: WebShopEnv, path: str, status: int, words: str) -> None:
    answer = get(path.replace("ASIN", env.shop.catalogue.product(0).asin))
    assert answer.status_code == status and words in said(answer) and f"{status} " in said(answer)
    assert "<script" not in answer.text and len(answer.text) < 3000


def test_long_addresses(get: Get) -> None:
    """The longest words that can be searched for have an address that the server takes; a longer address is refused."""
    words = ("\U0001f4a1" * 4_000,)
    assert get(address.path("s", Place("results", words, 1_000_000))).status_code == 200
    answer = get("/" + "x" * (LONGEST_ADDRESS + 1))
    assert answer.status_code == 414 and "longer than" in said(answer)


def test_no_option_that_a_product_does_not_have(get: Get, env: WebShopEnv) -> None:
    """Else an address could earn what no click can."""
    product = next(p for p in env.shop.catalogue if p.options)
    name, values = next(iter(product.options.items()))
    for options in ({name: "what the goal asks for"}, {"finish": values[0]}):
        for kind in ("item", "done"):
            answer = get(address.path("s", Place(kind, ("x",), 1, product.asin, options=tuple(options.items()))))  # type: ignore[arg-type]
            assert answer.status_code == 400 and escaped(repr(values[0] if name in options else name)) in answer.text
    assert get(address.path("s", Place("done", asin=product.asin, options=((name, values[0]),)))).status_code == 200


def test_bad_posts(base: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path, body, status, words in (
        ("/s", b"search_query=" + b"x" * 4_001, 413, "at most 4,000 characters"),
        ("/s", b"x" * (LONGEST_ADDRESS + 1), 413, "larger than"),
        ("/s", b"", 400, "search_query"),
        ("/s", b"search_query=", 400, "at least one character"),
        ("/s", b"search_query=%ff", 400, "UTF-8"),
        ("/s", b"\xff\xfe", 400, "no form"),
        ("/s", b"a=b&" * 50, 400, "no form"),
        ("/search_results/s/x/1", b"search_query=x", 405, "only a search is posted"),
    ):
        answer = httpx.post(base + path, content=body, headers=form)
        assert answer.status_code == status and words in said(answer), (path, body[:50])
    for method in ("PUT", "DELETE", "PATCH"):
        assert httpx.request(method, f"{base}/s").status_code == 405
    assert httpx.head(f"{base}/s").status_code == 200


class Broken(Shop):
    """A shop in which nothing can be seen."""

    def page(self, *args: Any, **options: Any) -> Page:
        raise RuntimeError("<b>the roof fell in</b>")


def test_a_fault_of_ours_is_said(env: WebShopEnv) -> None:
    shop = Broken(env.shop.catalogue, env.shop.nouns)
    with running(make_app(shop, env.task_set)) as url:
        answer = httpx.get(f"{url}/s")
        assert answer.status_code == 500 and "RuntimeError" in said(answer) and "<b>" not in answer.text


# ---- hostile products


def test_hostile_product(tmp_path: Path) -> None:
    """HTML in a product's texts shows as text, and its odd options can be chosen and bought."""
    evil = "<script>alert(1)</script>"
    options = {f'a/b "{evil}': ("x' | y", "%2F+?#"), "..": (".", "*..")}
    product = Product(
        "EVIL000001", evil, query=evil, description=evil, bullets=(evil,), options=options, wishes=(Wish(f"buy {evil}", ("x",)),), nouns=()
    )
    catalogue.build([product], tmp_path, progress=False)
    goals = Drawn(catalogue.Catalogue(tmp_path), "human")
    shop = Shop(goals.catalogue, Nouns())
    with running(make_app(shop, Tasks([goals], "all"))) as url, httpx.Client(base_url=url, follow_redirects=True) as client:
        page = client.post("/s", data={"search_query": evil})
        for click in ("evil000001", "x' | y", ".", "*..", "%2f+?#", "features", "< prev", "description", "< prev", "buy now"):
            assert evil not in page.text and evil in said(page) and page.status_code == 200
            page = client.get(links(page)[click])
        assert address.place(page.url.raw_path.decode())[1].options == ((f'a/b "{evil}', "%2F+?#"), ("..", "*.."))
        assert page.status_code == 200 and score(page) >= 0 and evil not in page.text


# ---- many at once


class Connection:
    """A connection that is kept open; httpx takes ten times the server's time where there are 500 of them."""

    async def open(self, base: str) -> None:
        self.reader, self.writer = await asyncio.open_connection(*base.removeprefix("http://").split(":"))

    async def get(self, path: str) -> str:
        """Return a page."""
        return await self._ask(f"GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n", b"200")

    async def post(self, path: str, words: str) -> str:
        """Post a search and return where it leads."""
        form = f"search_query={quote(words, safe='')}"
        return await self._ask(f"POST {path} HTTP/1.1\r\nhost: shop\r\ncontent-length: {len(form)}\r\n\r\n{form}", b"303")

    async def _ask(self, request: str, status: bytes) -> str:
        self.writer.write(request.encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == status, head
        size, moved = re.search(rb"content-length: (\d+)", head), re.search(rb"location: (\S+)", head)
        body = await self.reader.readexactly(int(size[1]) if size else 0)
        return (moved[1] if moved else body).decode()


async def visit(base: str, env: WebShopEnv, n: int) -> float:
    """One session: see the instruction, search, look at a product, buy it."""
    sid = f"fixed_{n % 100}_crowd{n}"
    goals, number = choose(env.task_set, sid)
    goal, connection = goals.goal(number), Connection()
    await connection.open(base)
    assert escaped(goal.instruction) in await connection.get(f"/{sid}")
    found = await connection.get(await connection.post(f"/{sid}", goal.name))
    link = re.search(r'class="product-link" href="([^"]*)">([^<]*)<', found)
    assert link is not None and escaped(goal.instruction) in found
    item = await connection.get(unescape(link[1]))
    buy = re.search(r'<form action="([^"]*)"><button type="submit" class="btn purchase"', item)
    assert buy is not None and escaped(goal.instruction) in item
    done = re.search(r'id="reward".*?<pre>(.*?)</pre>', await connection.get(unescape(buy[1])), re.S)
    assert done is not None and float(done[1]) == env.shop.buy(goals, goal, link[2], {})["reward"]
    connection.writer.close()
    return float(done[1])


def test_five_hundred_sessions_at_once(base: str, env: WebShopEnv) -> None:
    """500 sessions of five requests each, all at the same time: each sees its own goal and its own score, and none sees an error."""

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*(visit(base, env, n) for n in range(500)))

    start = time.process_time()
    scores = asyncio.run(all_of_them())
    print(f"500 sessions: {time.process_time() - start:.1f} s of CPU, clients and server")
    assert len(scores) == 500 and len(set(scores)) > 3


# ---- the command


def test_serve_starts_and_stops() -> None:
    command = "from agentgym.envs.webshop.server import serve; serve(products=60, size='mini', split='test', port=0)"
    process = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"webshop on (http://127\.0\.0\.1:\d+): 60 products, [\d,]+ tasks of the split 'test', \d+ MB", line)
        assert found is not None, line
        assert httpx.get(f"{found[1]}/health").json()["products"] == 60 and httpx.get(f"{found[1]}/fixed_0").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, -signal.SIGINT, 130)
    finally:
        process.kill()
        process.communicate()


def test_serve_says_what_is_wrong() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="another program listens there"):
            serve(port=taken.getsockname()[1])
    with pytest.raises(EnvError, match="split 'tset'"):
        serve(products=60, size="mini", split="tset", port=0)
