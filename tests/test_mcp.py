"""agentgym.mcp: the tools of real MCP servers (stdio, streamable HTTP, SSE), their faults, and that no server outlives its client."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the package 'mcp' is not installed: pip install 'agentgym[mcp]'")

import agentgym
from agentgym.errors import ConfigError, EnvError
from agentgym.mcp_client import MCPTools, _tool_name
from agentgym.mcp_session import _result
from agentgym.tool_env import ToolEnv
from agentgym.toolcall import CallError
from agentgym.tools import Tool, background_loop, run_async

SERVER = '''
import asyncio, os, sys
from typing import Any
try:
    from mcp.server.mcpserver import Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer, Image
    from mcp.server.fastmcp.exceptions import ToolError

server = MCPServer("sums", log_level="ERROR")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "rested"

@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)

@server.tool()
def die() -> str:
    """End the server."""
    print("famous last words", file=sys.stderr, flush=True)
    os._exit(3)

@server.tool()
def picture() -> Image:
    """Draw."""
    return Image(data=b"x" * 1234, format="png")

@server.tool()
def pid() -> int:
    """Say the process's id."""
    return os.getpid()

@server.tool(name="echo.any")
def echo(value: Any, name: str | None = None) -> str:
    """Say it again."""
    return repr(value)

async def guarded(scope, receive, send):
    """Ask for a key, as hosted servers do."""
    if scope["type"] == "http" and (b"x-key", b"secret") not in scope["headers"]:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})
    else:
        await apps[scope.get("path", "").startswith(("/sse", "/messages"))](scope, receive, send)

if len(sys.argv) > 1:
    import uvicorn
    apps = server.streamable_http_app(), server.sse_app()
    uvicorn.run(guarded, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
else:
    server.run()
'''

# The protocol by hand: two pages of tools, and every kind of answer that the package's own server does not give.
RAW = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked["method"], asked.get("params") or {}
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
    elif method == "tools/list":
        second = params.get("cursor") == "page 2"
        names = ["c/d", "open"] if second else ["refuse", "broken", "data", "c.d", "hang"]
        schema = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}, "flag": {"type": "boolean"}}}
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"} if n == "open" else schema} for n in names]}
        result |= {} if second else {"nextCursor": "page 2"}
    elif method == "tools/call":
        result = {"content": [], "structuredContent": {"got": params["arguments"], "name": params["name"]}}
        if params["name"] == "hang":
            time.sleep(99)
        if params["name"] == "open":
            result["structuredContent"] |= {"pid": os.getpid(), "mine": os.environ.get("MINE"), "theirs": os.environ.get("THEIRS")}
        if params["name"] in ("refuse", "broken"):
            code, said = {"refuse": (-32602, "n is odd"), "broken": (-32603, "out of paper")}[params["name"]]
            answer["error"] = {"code": code, "message": said}
    else:
        continue
    print(json.dumps(answer if "error" in answer else answer | {"result": result}), flush=True)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture(scope="module")
def listen(script: Path) -> Iterator[Callable[..., str]]:
    """Return a function that starts the server behind a free port, or again at its URL, and returns the URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start(again: str = "") -> str:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = int(again.split(":")[2].split("/")[0]) if again else s.getsockname()[1]
        running.append(subprocess.Popen([sys.executable, str(script), str(port)], stderr=subprocess.DEVNULL))
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        return f"http://127.0.0.1:{port}/mcp"

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def stdio(script: Path) -> Iterator[MCPTools]:
    tools = agentgym.mcp([sys.executable, str(script)])
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def http(listen: Callable[..., str]) -> Iterator[MCPTools]:
    tools = agentgym.mcp(listen(), headers={"X-Key": "secret"})
    yield tools
    tools.close()


@pytest.fixture(params=["stdio", "http"])
def tools(request: pytest.FixtureRequest) -> MCPTools:
    made: MCPTools = request.getfixturevalue(request.param)
    return made


def box(tools: MCPTools) -> dict[str, Tool]:
    return {t.name: t for t in tools}


def ended(pid: int, within: float = 8.0) -> bool:
    """Return whether a process ends in time; a dead one that nobody has waited for counts as ended."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def at_once(fn: Callable[[], Any], n: int) -> list[Any]:
    out: list[Any] = []

    def work() -> None:
        try:
            out.append(fn())
        except Exception as e:
            out.append(e)

    threads = [threading.Thread(target=work) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def test_tools_are_listed_and_called(tools: MCPTools) -> None:
    mine = box(tools)
    assert list(mine) == ["add", "slow", "fail", "die", "picture", "pid", "echo_any"] and len(tools) == 7
    assert mine["add"].spec.description == "Add two numbers." and mine["add"].spec.signature == "add(a: integer, b: integer)"
    assert "title" not in str(mine["add"].spec.parameters)
    assert mine["add"].run({"a": 1, "b": 2}).content == "3" and mine["add"].run({"a": "1", "b": "-2"}).content == "-1"
    assert mine["picture"].run({}).content == "[image image/png, 1,234 bytes]"
    failed = mine["fail"].run({"why": "no paper"})
    assert failed.error and "no paper" in failed.content


def test_wrong_arguments_are_told_to_the_model(tools: MCPTools) -> None:
    add = box(tools)["add"]
    for arguments, said in [
        ({"a": 1}, "add: the argument 'b' is missing. Call it as add(a: integer, b: integer)."),
        ({"a": 1, "b": 2, "c": 3}, "add: there is no argument 'c'."),
        ({"a": 1, "b": "two"}, "add: argument 'b': 'two' is not of type 'integer'."),
    ]:
        with pytest.raises(CallError) as e:
            add.run(arguments)
        assert str(e.value).startswith(said)


def test_nothing_that_a_model_writes_breaks_the_connection(tools: MCPTools) -> None:
    echo, pid = box(tools)["echo_any"], box(tools)["pid"]
    server = pid.run({}).content
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    assert echo.run({"value": "half \ud800 a pair"}).content == "'half ? a pair'"
    assert echo.run({"value": {"\udc00": [10**30, None, "\x00"]}}).content == repr({"?": [10**30, None, "\x00"]})
    assert len(echo.run({"value": "x" * 2_000_000}).content) < 10_100
    assert echo.run({"value": deep}).error
    for x in (float("inf"), float("nan"), {1, 2}):
        with pytest.raises(CallError, match="no JSON"):
            echo.run({"value": x})
    assert pid.run({}).content == server


def test_a_slow_tool_is_cut_off_and_the_server_lives_on(tools: MCPTools) -> None:
    hasty = copy.deepcopy(tools)
    hasty.timeout = 0.3
    before = box(tools)["pid"].run({}).content
    began = time.monotonic()
    cut = box(hasty)["slow"].run({"seconds": 60})
    assert cut.error and cut.content == "slow gave no answer within 0.3 s; the call was cut off." and time.monotonic() - began < 2
    assert box(tools)["pid"].run({}).content == before  # which also says that copies share the connection


def test_calls_of_many_episodes_run_at_once(tools: MCPTools) -> None:
    copies = iter([copy.deepcopy(tools) for _ in range(16)])
    began = time.monotonic()
    out = at_once(lambda: box(next(copies))["slow"].run({"seconds": 0.5}).content, 16)
    assert out == ["rested"] * 16 and time.monotonic() - began < 4


def test_a_server_that_dies_is_an_error_once_and_then_started_again(stdio: MCPTools) -> None:
    mine = box(stdio)
    before = mine["pid"].run({}).content
    others: list[Any] = []
    waiting = threading.Thread(target=lambda: others.extend(at_once(lambda: mine["slow"].run({"seconds": 20}), 3)))
    waiting.start()
    time.sleep(0.3)
    with pytest.raises(EnvError, match=r"(?s)was lost in a call of 'die'; the next call connects again\..*famous last words"):
        mine["die"].run({})
    waiting.join(5)
    assert len(others) == 3 and all(isinstance(e, EnvError) for e in others)
    after = at_once(lambda: mine["pid"].run({}).content, 4)
    assert len(set(after)) == 1 and after[0] != before and ended(int(before))


@pytest.mark.skipif(version("mcp").startswith("1."), reason="mcp 1.x notices a lost HTTP server only by the time-out")
def test_a_server_behind_a_url_may_go_and_come_back(http: MCPTools, listen: Callable[..., str]) -> None:
    mine = box(http)
    with pytest.raises(EnvError, match="was lost in a call of 'die'"):
        mine["die"].run({})
    with pytest.raises(EnvError, match=r"cannot be used: ConnectError: .*does it run\?"):
        mine["add"].run({"a": 1, "b": 2})
    listen(again=http.address.url)
    assert mine["add"].run({"a": 1, "b": 2}).content == "3"


def test_sse_and_only(http: MCPTools) -> None:
    tools = agentgym.mcp(http.address.url.replace("/mcp", "/sse"), headers={"X-Key": "secret"}, only=["add"])
    assert list(box(tools)) == ["add"] and box(tools)["add"].run({"a": 1, "b": 2}).content == "3"
    tools.close()
    with pytest.raises(ConfigError, match=r"has no tool 'ad' \(only=…\)\. Did you mean 'add'\? Tools: add, slow"):
        list(agentgym.mcp(http.address.url, headers={"X-Key": "secret"}, only=["ad"]))


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Callable[..., MCPTools]]:
    (tmp_path / "raw.py").write_text(RAW)
    made: list[MCPTools] = []

    def make(**options: Any) -> MCPTools:
        made.append(agentgym.mcp(f"'{sys.executable}' '{tmp_path / 'raw.py'}'", **options))
        return made[-1]

    yield make
    for tools in made:
        tools.close()


def whoami(tools: MCPTools) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(box(tools)["open"].run({}).content)
    return told


def test_a_server_that_answers_no_ping_is_ended(raw: Callable[..., MCPTools]) -> None:
    tools = raw(timeout=0.3, start_timeout=2)
    before = whoami(tools)["pid"]
    assert "cut off" in box(tools)["hang"].run({}).content
    assert ended(before, within=12) and whoami(tools)["pid"] != before


def test_the_environment_of_the_command(raw: Callable[..., MCPTools], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIRS", "a token that is nobody's business")
    told, plain = whoami(raw(env={"MINE": "yes"})), whoami(raw())
    assert told["mine"] == "yes" and told["theirs"] is None and plain["mine"] is None and plain["pid"] != told["pid"]


def test_close_ends_the_server_and_may_be_called_twice(raw: Callable[..., MCPTools]) -> None:
    tools = raw()
    tools.close()
    before = whoami(tools)["pid"]
    tools.close()
    tools.close()
    assert ended(before) and whoami(tools)["pid"] != before


def test_the_protocol_by_hand(raw: Callable[..., MCPTools]) -> None:
    mine = box(raw())
    assert list(mine) == ["refuse", "broken", "data", "c_d", "hang", "c_d_5", "open"]  # both pages
    assert mine["data"].spec.signature == "data(n: integer or null = None, flag: boolean = None)"
    assert mine["data"].run({"n": "3", "flag": "True"}).content == '{"got":{"n":3,"flag":true},"name":"data"}'
    assert mine["c_d_5"].run({}).content == '{"got":{},"name":"c/d"}'
    assert '"got":{"any":"3"}' in mine["open"].run({"any": "3"}).content
    with pytest.raises(CallError, match="refuse: n is odd"):
        mine["refuse"].run({"n": 1})
    broken = mine["broken"].run({})
    assert broken.error and broken.content == "broken failed: out of paper"


def test_what_cannot_be_started_says_why(http: MCPTools, listen: Callable[..., str]) -> None:
    list(http)
    url = http.address.url
    for where, said in [
        (url, "HTTP 401 Unauthorized"),
        ("http://127.0.0.1:9/mcp?key=hidden", r"MCP server http://127.0.0.1:9/mcp cannot be used: ConnectError"),
        ("no-such-program --now", "there is no program 'no-such-program'; install it, or give its path"),
        ([sys.executable, "-c", "raise SystemExit('no key')"], r"(?s)Connection closed\. The end of its stderr:\nno key"),
        ([sys.executable, "-c", "import time; time.sleep(99)"], r"did not list its tools within 1 s \(start_timeout\)"),
    ]:
        with pytest.raises(EnvError, match=said):
            list(agentgym.mcp(where, start_timeout=1 if "time" in str(where) else 20))
    for make in (
        lambda: agentgym.mcp(""),
        lambda: agentgym.mcp("a 'b"),
        lambda: agentgym.mcp("http:///mcp"),
        lambda: agentgym.mcp("a", headers={"X": "y"}),
        lambda: agentgym.mcp("http://a", env={"X": "y"}),
        lambda: agentgym.mcp("a", only="add"),
        lambda: agentgym.mcp("a", timeout=0),
    ):
        with pytest.raises(ConfigError):
            make()


def test_without_the_package_the_error_names_it(script: Path) -> None:
    code = f"import sys; sys.modules['mcp'] = None; import agentgym; tools = agentgym.mcp('python {script}'); list(tools)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert "ConfigError" in said and "pip install 'agentgym[mcp]'" in said


def test_it_can_be_awaited_in_any_loop_and_says_where_it_cannot_wait(stdio: MCPTools) -> None:
    add = box(stdio)["add"]
    assert asyncio.run(add(a=1, b=2)).content == "3" and run_async(add(a=1, b=2)).content == "3"

    async def setup() -> int:
        return len(agentgym.mcp("some other server"))

    with pytest.raises(EnvError, match="make setup"):
        asyncio.run_coroutine_threadsafe(setup(), background_loop()).result(5)


ELSEWHERE = """
import pickle, sys, time
tools = pickle.load(open(sys.argv[1], "rb"))
print({t.name: t for t in tools}["pid"].run({}).content, flush=True)
time.sleep(float(sys.argv[2]))
"""


def test_another_process_connects_on_its_own_and_leaves_no_orphan(stdio: MCPTools, tmp_path: Path) -> None:
    own = box(stdio)["pid"].run({}).content
    assert box(pickle.loads(pickle.dumps(stdio)))["pid"].run({}).content == own
    assert pickle.loads(pickle.dumps(box(stdio)["pid"])).run({}).content == own
    (tmp_path / "tools").write_bytes(pickle.dumps(stdio))
    commands = [[sys.executable, "-c", ELSEWHERE, str(tmp_path / "tools"), seconds] for seconds in ("0", "60")]
    done, killed = (subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands)
    assert done.stdout is not None and killed.stdout is not None
    theirs = int(killed.stdout.readline())
    killed.send_signal(signal.SIGKILL)
    said, failed = done.communicate(timeout=30)
    assert len({int(own), int(said), theirs}) == 3 and failed == ""
    assert ended(int(said)) and ended(theirs)
    killed.communicate(timeout=10)


class Sums(ToolEnv):
    """Add up with a server's tool."""

    format = "hermes"

    def __init__(self) -> None:
        super().__init__(tasks=[{"id": "a", "x": 2, "y": 3}])

    def setup(self, task: dict[str, Any]) -> str:
        return f"{task['x']} + {task['y']}?"

    def score(self, answer: str) -> bool:
        return answer == "5"


def test_in_an_environment(tools: MCPTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "tools", [tools])
    env = Sums()
    observation, info = env.reset(options={"task": "a"})
    assert '"add"' in observation and [s.name for s in info["tools"]][-1] == "answer"
    observation, reward, terminated, _, info = env.step(env.call_text("add", a=2, b=3))
    assert "5" in observation and info["valid"] and not terminated
    wrong = env.call_text("add", a=2, b=3).replace("3", '"three"')
    observation, *_, info = env.step(wrong)
    assert "'three' is not of type 'integer'" in observation and not info["valid"]
    other = copy.deepcopy(env)
    other.reset(options={"task": "a"})
    assert box(tools)["pid"].run({}).content in other.step(other.call_text("pid"))[0]
    _, reward, terminated, _, info = env.step(env.call_text("answer", text="5"))
    assert reward == 1.0 and terminated and info["success"]
    other.reset(options={"task": "a"})
    if tools.address.command:
        with pytest.raises(EnvError, match="was lost"):
            other.step(other.call_text("die"))


def test_results_become_text() -> None:
    assert _result({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "structuredContent": {"x": 1}}).content == "a\nb"
    assert _result({"content": []}).content == "OK"
    assert _result({"content": [], "structuredContent": {"x": 1}, "isError": True}).error
    many = [
        {"type": "audio", "data": "eHg=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "eHh4", "mimeType": "application/zip"}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
    ]
    assert _result({"content": many}).content.split("\n") == [
        "[audio audio/wav, 2 bytes]",
        "inside",
        "[resource application/zip, 3 bytes]",
        "[resource c file:///c]",
    ]
    assert [_tool_name(n) for n in ("a.b", "1x", "x" * 70)] == ["a_b", "_1x", "x" * 64]
