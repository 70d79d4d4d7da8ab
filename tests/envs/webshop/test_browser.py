"""The shop in a real Chromium: the same as the text mode, whatever the browser does not survive, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.webshop import browser as browsers
from agentgym.envs.webshop import catalogue, chromium, render
from agentgym.envs.webshop.browser import BrowserVisit
from agentgym.envs.webshop.chromium import Browser, browser, require
from agentgym.envs.webshop.env import WebShopEnv
from agentgym.envs.webshop.goals import Drawn
from agentgym.envs.webshop.nouns import Nouns
from agentgym.envs.webshop.shop import Shop
from agentgym.envs.webshop.types import Product, Wish
from agentgym.errors import EnvError

OPTIONS: dict[str, Any] = {"max_steps": None, "feedback": True, "split": "all"}
SMALL: dict[str, Any] = {"products": 120, "size": "full", **OPTIONS}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        require()
    except EnvError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def text() -> WebShopEnv:
    return WebShopEnv(**SMALL)


@pytest.fixture
def shown() -> Iterator[WebShopEnv]:
    env = WebShopEnv(**SMALL, observation="browser")
    yield env
    env.close()


# ---- the same as the text mode


def compare(text: WebShopEnv, shown: WebShopEnv, task: str, act: Callable[[str, dict[str, Any]], str], steps: int) -> str:
    """Play the same actions in both; return the kind of the last place."""
    observation, info = text.reset(options={"task": task})
    assert shown.reset(options={"task": task}) == (observation, info)
    for _ in range(steps):
        action = act(observation, info)
        expected, got = text.step(action), shown.step(action)
        assert got[0] == expected[0], action
        assert got[1:] == expected[1:], action  # reward, done, and all that info says: address, clickables, parts of the reward
        observation, _, done, _, info = expected
        if done:
            break
    return text._here.place.kind


def wanderer(text: WebShopEnv, seed: int) -> Callable[[str, dict[str, Any]], str]:
    """Clicks and searches at random, some of it impossible."""
    rng = random.Random(seed)

    def act(observation: str, info: dict[str, Any]) -> str:
        names = [n for n in info["available_actions"]["clickables"] if n != "search" and (n != "buy now" or rng.random() < 0.3)]
        if rng.random() < 0.1:
            return rng.choice(["click[no such thing]", "Search[x]", "nonsense", "click[search]", "click[buy now] please", "search[a/b + c? #\"'%]"])
        if not names or rng.random() < 0.15:
            return f"search[{' '.join(rng.sample(info['goal'].split(), 3))}]"
        return f"click[{rng.choice(names)}]"

    return act


@pytest.mark.slow
def test_same_as_text_mode_on_generated_products(text: WebShopEnv, shown: WebShopEnv) -> None:
    tasks = text.tasks()
    ends = [compare(text, shown, tasks[7 * n % len(tasks)], wanderer(text, n), 12) for n in range(12)]
    ends += [compare(text, shown, tasks[(11 * n + 5) % len(tasks)], shopper(text), 30) for n in range(12)]
    assert ends.count("done") >= 12


def shopper(text: WebShopEnv) -> Callable[[str, dict[str, Any]], str]:
    made: list[Any] = []

    def act(observation: str, info: dict[str, Any]) -> str:
        made or made.append(text.expert())
        return str(made[0].act(observation, info))

    return act


@pytest.mark.slow
def test_same_as_text_mode_on_real_products(webshop_data: Path) -> None:
    real: dict[str, Any] = {**OPTIONS, "data": webshop_data, "replay": webshop_data / "transcripts"}
    text, shown = WebShopEnv(**real), WebShopEnv(**real, observation="browser")
    tasks = text.tasks()
    ends = [compare(text, shown, tasks[577 * n % len(tasks)], shopper(text), 30) for n in range(6)]
    ends += [compare(text, shown, tasks[(331 * n + 9) % len(tasks)], wanderer(text, n), 12) for n in range(6)]
    shown.close()
    assert ends.count("done") >= 6


def test_searches_that_a_box_does_not_take(text: WebShopEnv, shown: WebShopEnv) -> None:
    """Characters that cannot be typed, or would be folders in an address; by the box of the first page, and by address from another."""
    words = ["..", ".", "a\tb\rc", "\ud800x", "x\u2028y", "<script>alert(1)</script>", "ÄÖÜ ß İ Σ", " ", "a  b", "+", "%2e%2e", "\x00", "<r> lamp"]
    actions = iter([a for w in words for a in ("click[back to search]", f"search[{w}]", f"search[{w}]")][1:])
    compare(text, shown, text.tasks()[0], lambda observation, info: next(actions), 3 * len(words) - 1)
    shown.reset(options={"task": text.tasks()[0]})
    info = shown.step(f"search[{'x' * 4_001}]")[4]
    assert not info["valid"] and info["available_actions"]["has_search_bar"]
    assert shown.step(f"search[{'ü' * 4_000}]")[4]["valid"]


# ---- what else it shows


def test_hostile_product(tmp_path: Path) -> None:
    """A title is text, not a script; odd options can be chosen; the reward is that of the shop."""
    evil = '<script>document.title = "mine"</script><img src=x onerror="document.title = 1">'
    options = {f"a/b {evil}": ("x' | y", "%2F+?#"), "size 1": ("s", "buy now"), "size ": tuple("abcdefghijkl"), "..": (".", "s")}
    goals = Drawn(built([product := Product("EVIL000001", evil, query="evil", options=options, wishes=(Wish("buy", ("x",)),))], tmp_path), "human")
    visit = BrowserVisit(shop := Shop(goals.catalogue, Nouns()), goals, goals.goal(0))
    for action in ("search[script]", "click[evil000001]", "click[%2f+?#]", "click[l]", "click[s]", "click[.]", "click[s]", "click[x' | y]"):
        assert visit.act(action.lower()) or action == "click[%2f+?#]", action
        assert visit.observation() == render.text(visit.page) and evil in visit.observation()
        assert visit._do(visit._tab.page.title(), "the title") == "WebShop"
    assert dict(visit.place.options) == {f"a/b {evil}": "x' | y", "size ": "l", "..": "s"}
    assert visit.act("click[buy now]") and visit.place.kind == "done" and visit.clickables == {}
    assert visit.reward_info == shop.buy(goals, goals.goal(0), product.asin, dict(visit.place.options))
    visit.close()


def built(products: list[Product], folder: Path) -> catalogue.Catalogue:
    catalogue.build(products, folder, progress=False)
    return catalogue.Catalogue(folder)


def visit_of(env: WebShopEnv, n: int = 0, **options: Any) -> BrowserVisit:
    goals, number = env.task_set.find(env.tasks()[n])
    return BrowserVisit(env.shop, goals, goals.goal(number), **options)


def on_an_item(visit: BrowserVisit) -> tuple[str, str]:
    """Go to a product with options; choose one, and return it."""
    product = next(p for p in visit._tab.visitor.shop.catalogue if len(p.options) > 1)
    visit.act(f"search[{product.name.lower()}]")
    while product.asin.lower() not in visit.clickables:
        assert visit.act("click[next >]") and visit.place.page < 6
    visit.act(f"click[{product.asin.lower()}]")
    name, value = next((c.name, text) for text, c in visit.clickables.items() if c.kind == "option")
    assert visit.act(f"click[{value}]") and dict(visit.place.options) == {name: value}
    assert visit.act(f"click[{value}]") and dict(visit.place.options) == {name: value}  # again
    return name, value


def test_accessibility_snapshot_shows_what_is_chosen(text: WebShopEnv) -> None:
    visit = visit_of(text, snapshot="aria")
    assert "textbox" in visit.observation() and 'button "Search"' in visit.observation()
    _, value = on_an_item(visit)
    tree = visit.observation()
    assert tree.count("[checked]") == 1 and value in next(line for line in tree.splitlines() if "[checked]" in line)
    assert 'button "Buy Now"' in tree and "/item_page/" not in tree and "episode" not in tree
    visit.close()


def test_screenshot(text: WebShopEnv) -> None:
    visit = visit_of(text)
    first = visit.screenshot()
    on_an_item(visit)
    second = visit.screenshot()
    assert first[:8] == second[:8] == b"\x89PNG\r\n\x1a\n" and len(first) > 2_000 and first != second
    visit.close()


def test_other_agents_can_click_the_radio_itself(text: WebShopEnv) -> None:
    visit = visit_of(text)
    name, _ = on_an_item(visit)
    other = next(t for t, c in visit.clickables.items() if c.kind == "option" and c.name != name)

    async def click() -> str:
        page = visit._tab.page
        async with page.expect_navigation():
            await page.get_by_role("radio", name=other, exact=True).first.click()
        return str(page.url)

    assert "item_page" in visit._do(click(), "a click")
    visit.close()


def test_no_request_goes_elsewhere(text: WebShopEnv) -> None:
    """Neither to another port of this machine nor to another host; what listens there hears nothing."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(0.5)
        visit = visit_of(text)
        port = other.getsockname()[1]

        async def leave() -> list[str]:
            said, page = [], await visit._tab.page.context.new_page()
            for url in (f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", "https://example.com/"):
                try:
                    await page.goto(url)
                except Exception as e:
                    said.append(str(e))
            await visit._tab.page.evaluate(
                f"() => {{ new Image().src = 'http://127.0.0.1:{port}/'; fetch('http://127.0.0.1:{port}/').catch(() => 0) }}"
            )
            return said

        assert len(visit._do(leave(), "leaving")) == 3
        with pytest.raises(TimeoutError):
            other.accept()
        visit.close()


# ---- what goes wrong


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, by their command."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(") ")
                parents.setdefault(int(rest.split()[1]), []).append((int(entry.name), name))
            except OSError:
                continue
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        for child, name in parents.get(todo.pop(), []):
            found[child] = name
            todo.append(child)
    return found


def send(what: int, name: str) -> None:
    """Send a signal to our own processes of that name."""
    for pid, command in descendants(os.getpid()).items():
        if command.startswith(name):
            os.kill(pid, what)


@pytest.mark.parametrize("victim", ["chromium", "node"])
def test_a_dead_browser_is_an_error_and_a_new_one_starts(shown: WebShopEnv, victim: str) -> None:
    shown.reset(seed=0)
    shown.step("search[lamp]")
    send(signal.SIGKILL, victim)
    with pytest.raises(EnvError, match="The episode is void"):
        shown.step("search[shirt]")
    with pytest.raises(EnvError, match="broken"):
        shown.step("search[shirt]")
    shown.reset(seed=0)
    assert "Page 1" in shown.step("search[lamp]")[0]


def test_a_dead_page_breaks_its_episode_only(text: WebShopEnv) -> None:
    one, two = visit_of(text, 0), visit_of(text, 1)
    one._browser.call(one._tab.page.close(), 5, "closing the page")
    with pytest.raises(EnvError, match="void"):
        one.act("search[lamp]")
    assert two.act("search[lamp]") and two.place.kind == "results"
    one.close()
    two.close()


@pytest.mark.slow
def test_a_browser_that_hangs(text: WebShopEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after a while, and replaced."""
    monkeypatch.setattr(browsers, "CALL", 2.0)
    monkeypatch.setattr(chromium, "CALL", 2.0)
    visit = visit_of(text)
    send(signal.SIGSTOP, "chromium")
    start = time.monotonic()
    with pytest.raises(EnvError, match="longer than 2 s"):
        visit.act("search[lamp]")
    visit.close()
    monkeypatch.setattr(browsers, "CALL", 20.0)
    again = visit_of(text)
    assert again.act("search[lamp]") and time.monotonic() - start < 30
    again.close()


def test_reward_only_for_a_page_that_was_shown(text: WebShopEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server fails at the purchase, the episode is an error and has no reward."""
    visit = visit_of(text)
    on_an_item(visit)

    def fail(*args: Any) -> None:
        raise RuntimeError("no money")

    monkeypatch.setattr(text.shop, "buy", fail)
    with pytest.raises(EnvError, match="500"):
        visit.act("click[buy now]")
    assert visit.reward_info is None and visit.place.kind == "item"
    visit.close()


def test_admission(text: WebShopEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more episodes than allowed; one that waits is let in when another ends, and told when none does. One that nobody closed ends, too."""
    ours = Browser(2)
    monkeypatch.setattr(browsers, "browser", lambda: ours)
    monkeypatch.setattr(chromium, "WAIT", 0.5)
    visits = [visit_of(text, n) for n in range(2)]
    with pytest.raises(EnvError, match=r"2 episodes are open in this process.*rollout\.concurrency.*AGENTGYM_BROWSER_EPISODES"):
        visit_of(text, 2)
    monkeypatch.setattr(chromium, "WAIT", 20.0)
    threading.Timer(0.5, visits[0].close).start()
    visits.append(visit_of(text, 2))
    assert visits[2].act("search[lamp]") and len(ours._sessions) == 2
    visits[1].close()
    visits[1].close()  # again: nothing
    monkeypatch.setattr(chromium, "WAIT", 5.0)
    visits.append(visit_of(text, 3))
    del visits[:]
    gc.collect()
    assert visit_of(text, 4).act("search[lamp]")
    gc.collect()
    deadline = time.monotonic() + 10
    while (len(ours._sessions) or ours._chromium.contexts) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(ours._sessions) == 0 and not ours._chromium.contexts
    ours.close()


def test_many_at_once(text: WebShopEnv) -> None:
    """Eight threads with an episode each."""

    def play(n: int) -> tuple[str, str]:
        visit = visit_of(text, n)
        visit.act("search[lamp]")
        visit.act("click[next >]")
        seen = visit.observation()
        visit.close()
        return seen, visit.goal.instruction

    with ThreadPoolExecutor(8) as pool:
        for seen, instruction in pool.map(play, range(8)):
            assert instruction in seen and "Page 2" in seen


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AGENTGYM_CHROMIUM", raising=False)
    with pytest.raises(EnvError, match=r"apt-get install -y --no-install-recommends chromium-headless-shell .*AGENTGYM_CHROMIUM"):
        require()
    monkeypatch.setenv("AGENTGYM_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(EnvError, match=r"AGENTGYM_CHROMIUM is .*no program"):
        require()
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    with pytest.raises(EnvError, match=r"pip install 'agentgym\[browser\]'"):
        require()


def test_something_else_installed(text: WebShopEnv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What starts but is no browser: an error that names it; the next one tries again."""
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    ours = Browser(1)
    monkeypatch.setattr(browsers, "browser", lambda: ours)
    monkeypatch.setenv("AGENTGYM_CHROMIUM", str(fake))
    for _ in range(2):
        with pytest.raises(EnvError, match=f"{fake} does not start"):
            visit_of(text)
    monkeypatch.delenv("AGENTGYM_CHROMIUM")
    visit = visit_of(text)
    assert visit.act("search[lamp]")
    visit.close()
    ours.close()


@pytest.mark.parametrize("said", ["0", "many", "-1", ""])
def test_number_of_episodes(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(chromium, "_browsers", {})
    monkeypatch.setenv("AGENTGYM_BROWSER_EPISODES", said)
    with pytest.raises(EnvError, match="whole number from 1 up"):
        browser()


# ---- what stays behind

OWNER = """
import os, sys, time
from agentgym.envs.webshop.env import WebShopEnv
env = WebShopEnv(products=120, size="full", split="all", observation="browser")
env.reset(seed=0)
print("ready", flush=True)
if sys.argv[1] == "wait":
    time.sleep(60)
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        try:
            env.step("search[lamp]")
        except Exception as e:
            print(e, flush=True)
        env.reset(seed=1)
        assert "Page 1" in env.step("search[lamp]")[0]
        sys.exit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    assert "Page 1" in env.step("search[lamp]")[0]
if sys.argv[1] == "fail":
    raise SystemExit(3)
"""


def start_owner(how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def gone(pids: dict[int, str], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_browser_ends_with_a_process_that_is_killed(what: signal.Signals) -> None:
    process = start_owner("wait")
    below = descendants(process.pid)
    assert any(name.startswith("chromium") for name in below.values()) and any(name.startswith("node") for name in below.values())
    process.send_signal(what)
    process.communicate(timeout=20)
    assert gone(below)


def test_browser_ends_with_a_process_that_fails() -> None:
    process = start_owner("fail")
    below = descendants(process.pid)
    start = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == 3 and time.monotonic() - start < 10 and gone(below)


def test_a_fork_has_its_own_browser() -> None:
    process = start_owner("fork")
    assert process.stdout is not None
    said = process.stdout.read()  # not communicate(): it forgets what readline() had read ahead
    process.wait(20)
    assert "belongs to the process that this one was forked from" in said and "child 7" in said and process.returncode == 0


def test_pictures_and_trees_of_an_episode(tmp_path: Path, text: WebShopEnv) -> None:
    env = WebShopEnv(**SMALL, observation="browser_aria", screenshots=tmp_path / "new")
    observation, info = env.reset(options={"task": text.tasks()[0]})
    assert '- textbox "' in observation and '- button "Search"' in observation
    _, _, _, _, info = env.step("search[<r>]")
    env.close()
    assert info["keep"] == {"screenshot": info["screenshot"]} and info["screenshot"].endswith("-001.png")
    pictures = sorted((tmp_path / "new").iterdir())
    assert [p.name[-7:] for p in pictures] == ["000.png", "001.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)
    with pytest.raises(EnvError, match="works only with observation='browser'"):
        WebShopEnv(**SMALL, screenshots=tmp_path)
