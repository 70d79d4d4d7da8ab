"""The client of OpenAI-compatible endpoints against a real HTTP server that misbehaves on demand."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Policy, Request
from agentgym.trainers.policy._pace import Pace, retry_after
from agentgym.trainers.policy._usage import line
from agentgym.trainers.policy.openai import openai
from agentgym.types import Completion, Message, Sampling

OK = {"choices": [{"message": {"role": "assistant", "content": "look"}, "finish_reason": "stop"}]}


class Server(ThreadingHTTPServer):
    """Plays its script, one (status, headers, body) per request; a number as status is that, "hang" and "drop" are what they say."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[tuple[int | str, dict[str, str], Any]] = []
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.in_flight = self.most = 0
        self.delay = 0.0
        self.default: dict[str, Any] = OK
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_POST(self) -> None:
        s = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with s.lock:
            s.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers, answer = s.script.pop(0) if s.script else (200, {}, s.default)
            s.in_flight += 1
            s.most = max(s.most, s.in_flight)
        time.sleep(s.delay)
        with s.lock:
            s.in_flight -= 1
        if status == "hang":
            s.stop.wait(20)
        if isinstance(status, str):
            self.close_connection = True
            return
        raw = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def server() -> Iterator[Server]:
    s = Server()
    thread = threading.Thread(target=s.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield s
    s.stop.set()
    s.shutdown()
    s.server_close()


def client(server: Server, **options: Any) -> openai:
    return openai(**({"model": "m", "base_url": server.url, "backoff": 0.01, "timeout": 5.0} | options))


def ask(policy: openai, sampling: Sampling | None = None, n: int = 1) -> list[Completion]:
    async def main() -> list[Completion]:
        messages = [Message("system", "play"), Message("user", "You see a door. ☃")]
        requests = (Request(str(i), -5, messages=messages) for i in range(n))
        try:
            return await asyncio.gather(*(policy.complete(r, sampling or Sampling()) for r in requests))
        finally:
            await policy.close()

    return asyncio.run(main())


def test_request_and_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    policy = client(server, api_key_env="MY_KEY", extra={"think": False})
    [c] = ask(policy, Sampling(max_tokens=7, temperature=0.5, top_p=0.9, top_k=3, stop=("\n",)))
    assert (c.text, c.tokens, c.logprobs, c.finish) == ("look", None, None, "stop")
    [(path, headers, body)] = server.seen
    assert path == "/v1/chat/completions" and headers["authorization"] == "Bearer secret"
    assert body["messages"] == [{"role": "system", "content": "play"}, {"role": "user", "content": "You see a door. ☃"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"], body["top_k"]) == (
        "m",
        7,
        0.5,
        0.9,
        3,
    )
    assert body["stop"] == ["\n"] and body["think"] is False and 0 <= body["seed"] < 2**31
    assert isinstance(policy, Policy) and policy.wants == "text"


def test_optional_fields_are_left_out(server: Server) -> None:
    ask(client(server, length_field="max_completion_tokens"))
    [(_, headers, body)] = server.seen
    assert "authorization" not in headers and not {"stop", "top_k", "max_tokens"} & set(body) and body["max_completion_tokens"] == 32


@pytest.mark.parametrize("failure", [(500, {}, "oops"), (429, {}, "slow down"), (503, {}, ""), ("drop", {}, "")])
def test_what_may_pass_is_tried_again(server: Server, failure: tuple[int | str, dict[str, str], Any]) -> None:
    server.script = [failure, failure]
    assert ask(client(server))[0].text == "look" and len(server.seen) == 3


def test_retries_are_bounded_and_the_error_says_what_happened(server: Server) -> None:
    server.script = [(500, {}, "the GPU is on fire")] * 9
    with pytest.raises(
        PolicyError,
        match=r"127.0.0.1:\d+/v1/chat/completions .model 'm'. gave no answer in 3 tries.*HTTP 500: 'the GPU is on fire'",
    ):
        ask(client(server, retries=2))
    assert len(server.seen) == 3


def test_a_rate_limit_pauses_everybody_and_is_no_retry(server: Server) -> None:
    server.script = [(429, {"retry-after": "0.3"}, "slow down")]
    policy = client(server, retries=0, connections=1)
    begin = time.perf_counter()
    assert len(ask(policy, n=3)) == 3 and time.perf_counter() - begin >= 0.3
    counts = policy.usage()
    assert (counts["requests"], counts["retries"], counts["rate_limited"], counts["unreported"]) == (3, 0, 1, 3)


def test_a_rate_limit_is_waited_for_only_so_long(server: Server) -> None:
    server.script = [(429, {"retry-after": "0.1"}, ""), (429, {"retry-after": "7"}, "come back later")]
    with pytest.raises(PolicyError, match=r"over its rate limit and asks to wait another 7 s, after 0.1 s; at most 5 s.*come back later"):
        ask(client(server, rate_wait=5.0))
    server.script = [(429, {}, {"error": {"code": "insufficient_quota"}})]
    with pytest.raises(PolicyError, match=r"refused the request: HTTP 429.*insufficient_quota"):
        ask(client(server))


def test_requests_are_spread_over_the_minute(server: Server) -> None:
    begin = time.perf_counter()
    ask(client(server, per_minute=600.0), n=4)  # one every 0.1 s
    assert 0.3 <= time.perf_counter() - begin < 2


def test_backoff_doubles_and_jitters() -> None:
    pace = Pace(1.0)
    for attempt, top in ((0, 1.0), (1, 2.0), (3, 8.0), (9, 30.0), (5000, 30.0)):
        delays = [pace.delay(attempt) for _ in range(200)]
        assert top / 2 <= min(delays) < 0.6 * top and 0.9 * top < max(delays) <= top


def test_retry_after_is_a_number_or_a_date() -> None:
    future = email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=20))
    assert 18 < retry_after({"retry-after": future}) <= 20
    assert [retry_after({"retry-after": x}) for x in ("2.5", "-1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT")] == [2.5, 0, 0, 0]
    assert retry_after({}) == 0


def test_usage_and_cost_by_hand(server: Server) -> None:
    def answer(**usage: Any) -> tuple[int, dict[str, str], Any]:
        return 200, {}, {**OK, "usage": usage}

    cached = {"prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 30}}
    server.script = [answer(prompt_tokens=1000, completion_tokens=50, **cached), answer(prompt_tokens=500, completion_tokens=10), (500, {}, "")]
    policy = client(server, price_in=2.0, price_out=10.0, price_cached=0.5, connections=1)
    ask(policy, n=3)
    found = policy.usage()
    assert found == {
        "requests": 3, "retries": 1, "rate_limited": 0, "prompt": 1500, "cached": 400, "completion": 60, "reasoning": 30, "unreported": 1,
        "cost": pytest.approx((1100 * 2 + 400 * 0.5 + 60 * 10) / 1e6),
    }  # fmt: skip
    assert line(found) == (
        "3 answers, 1 retries, 0 times rate-limited; 1,500 tokens read (400 cached), 60 written (30 reasoning), 1 answers without token counts; "
        "cost 0.0030"
    )
    assert "cost" not in client(server).usage() and "set policy.price_in" in line(client(server).usage())


def test_eval_reports_usage_over_all_sessions(server: Server, command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    server.default = {**OK, "usage": {"prompt_tokens": 100, "completion_tokens": 5}}
    (tmp_path / "toy.yaml").write_text("env: {name: toy, size: 3, max_steps: 2}\nsplits: {train: train, eval: test}\n", "utf-8")
    args = ("eval", server.url, "toy.yaml", "--model", "m", "--tasks", "2", "--out", "out", "policy=openai", "policy.price_in=10.0")
    code, out, err = command(*args)
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    n = results["usage"]["requests"]
    assert code == 0 and n > 0, err
    assert results["usage"]["prompt"] == 100 * n and results["usage"]["cost"] == pytest.approx(n * 1e-3) and f"{int(n)} answers" in out
    rows = (tmp_path / "out" / "episodes.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "out" / "episodes.jsonl").write_text(rows[0] + "\n", "utf-8")  # as if interrupted: one episode is played again
    assert command(*args)[0] == 0
    again = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert again["usage"]["requests"] > n and again["usage"] == json.loads((tmp_path / "out" / "usage.json").read_text("utf-8"))


def test_retry_after_is_honoured(server: Server) -> None:
    server.script = [(429, {"retry-after": "0.3"}, ""), (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, "")]
    begin = time.perf_counter()
    ask(client(server))
    assert 0.3 <= time.perf_counter() - begin < 2


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_will_not_pass_is_not_tried_again(server: Server, status: int) -> None:
    server.script = [(status, {}, {"error": {"message": "no such model"}})]
    with pytest.raises(PolicyError, match=f"refused the request: HTTP {status}.*no such model"):
        ask(client(server))
    assert len(server.seen) == 1


def test_a_server_that_never_answers_times_out(server: Server) -> None:
    server.script = [("hang", {}, "")] * 2
    begin = time.perf_counter()
    with pytest.raises(PolicyError, match=r"in 2 tries; the last one: no answer within 0.2 s"):
        ask(client(server, timeout=0.2, retries=1))
    assert time.perf_counter() - begin < 3


def test_nobody_there() -> None:
    with pytest.raises(PolicyError, match="in 1 try; the last one: ConnectError"):
        ask(openai(model="m", base_url="http://127.0.0.1:9/v1", retries=0, timeout=2.0))


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("{not json", "no chat completion .JSONDecodeError.*not json"),
        ({"choices": []}, "no chat completion .IndexError"),
        ([1], "no chat completion .TypeError"),
        (
            {"choices": [{"message": {"content": None}, "finish_reason": "tool_calls"}]},
            "without text .finish_reason 'tool_calls'",
        ),
    ],
)
def test_answers_that_are_none(server: Server, body: Any, match: str) -> None:
    server.script = [(200, {}, body)]
    with pytest.raises(PolicyError, match=match):
        ask(client(server))


def test_length(server: Server) -> None:
    server.script = [(200, {}, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]})]
    [c] = ask(client(server))
    assert (c.text, c.finish) == ("", "length")


def test_connections_are_pooled_and_bounded_and_queueing_is_no_time_out(server: Server) -> None:
    server.delay = 0.2
    policy = client(server, connections=4, timeout=0.6, retries=0)
    assert len(ask(policy, n=24)) == 24  # 1.2 s in all: twice the time-out of one
    assert server.most <= 4
    assert len(ask(policy)) == 1, "a policy survives its event loop"


def test_configuration_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"'OPENAI_API_KEY'.*is not set; api.openai.com needs a key"):
        openai(model="m")
    with pytest.raises(ConfigError, match="is no URL"):
        openai(model="m", base_url="localhost:8000")
    with pytest.raises(ConfigError, match="timeout must be"):
        openai(model="m", base_url="http://localhost/v1", timeout=0.0)
    asyncio.run(openai(model="m", base_url="http://localhost/v1").close())


def test_no_messages(server: Server) -> None:
    with pytest.raises(PolicyError, match="sends no messages"):
        asyncio.run(client(server).complete(Request("x", 0), Sampling()))


@pytest.mark.parametrize(
    ("said", "reason", "kept"),
    [
        ("<think>a</think><search> x ", "stop", "<think>a</think><search> x </search>"),
        ("<search> x </search>", "stop", "<search> x </search>"),
        ("<search> x ", "length", "<search> x "),
        ("no tag at all", "stop", "no tag at all"),
        ("<search>a</search> then <answer>b", "stop", "<search>a</search> then <answer>b</answer>"),
    ],
)
def test_a_stop_string_that_the_endpoint_leaves_out_is_put_back(server: Server, said: str, reason: str, kept: str) -> None:
    server.script = [(200, {}, {"choices": [{"message": {"content": said}, "finish_reason": reason}]})]
    policy = openai(model="m", base_url=server.url)
    request = Request("e", 0, messages=[Message("user", "?")])
    got = asyncio.run(policy.complete(request, Sampling(stop=("</search>", "</answer>"))))
    assert got.text == kept and server.seen[0][2]["stop"] == ["</search>", "</answer>"]


def test_tool_calls_of_the_endpoint_play_a_tool_environment(server: Server) -> None:
    import agentgym
    from agentgym import registry
    from agentgym.rollout import Agent, play
    from agentgym.types import Task

    class Sums(agentgym.ToolEnv):
        """Add up."""

        format = "openai"

        @agentgym.tool
        def add(self, x: int, y: int) -> int:
            """Add two numbers."""
            return x + y

        def setup(self, task: Any) -> str:
            return "2 + 3?"

        def score(self, answer: str) -> bool:
            return answer == "5"

    def answer(*calls: tuple[str, dict[str, Any]]) -> tuple[int, dict[str, str], Any]:
        wire = [{"id": f"{n}-{i}", "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, (n, a) in enumerate(calls)]
        return 200, {}, {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": wire}, "finish_reason": "tool_calls"}]}

    server.script = [answer(("add", {"x": 1, "y": 1}), ("add", {"x": 2, "y": 3})), (200, {}, OK), answer(("answer", {"text": "5"}))]
    agent = Agent(openai(model="m", base_url=server.url), registry.find("context", "full"), registry.find("action", "plain"), Sampling(max_tokens=50))
    env = Sums(tasks=[{"id": "t"}])
    out = asyncio.run(play(agent, env, Task("t", "sums", "train"), group="g", seed=1))
    assert out.success and out.outcome == 1.0 and [s.valid for s in out.steps] == [True, False, True], out.error
    bodies = [body for _, _, body in server.seen]
    assert [t["function"]["name"] for t in bodies[0]["tools"]] == ["add", "answer"]
    assert bodies[0]["tools"][0]["function"]["parameters"]["required"] == ["x", "y"]
    user, assistant, *tools = bodies[1]["messages"]
    assert user["role"] == "user" and user["content"].endswith("2 + 3?") and [c["id"] for c in assistant["tool_calls"]] == ["add-0", "add-1"]
    assert tools == [{"role": "tool", "tool_call_id": "add-0", "content": "2"}, {"role": "tool", "tool_call_id": "add-1", "content": "5"}]
    assert bodies[2]["messages"][4] == {"role": "assistant", "content": "look"}  # no call: the next message is the feedback
    assert "The answer calls no tool" in bodies[2]["messages"][5]["content"]
