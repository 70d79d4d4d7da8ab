"""Policy vllm against servers: what is asked, how weights are pushed and checked, and what happens when a server is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym import store
from agentgym.config import build, merge, normalise
from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Policy, Request
from agentgym.trainers.engine.remote import Remote, piece_of
from agentgym.trainers.policy.vllm import vllm
from agentgym.trainers.train import train
from agentgym.types import Completion, Sampling

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text("utf-8"))


def play(policy: vllm, script: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await asyncio.wait_for(script(), 60)
        finally:
            await policy.close()

    return asyncio.run(main())


@pytest.fixture
def policy(parts: Any) -> Callable[..., vllm]:
    return lambda *servers, **options: vllm(parts.model, parts.renderer, urls=tuple(s.url for s in servers), **{"patience": 20.0, **options})


def test_recorded_answers_are_understood() -> None:
    piece = piece_of(RECORDED["generate"]["answer"], "it")
    assert (piece.tokens, piece.finish, piece.labels) == ([187, 217, 11, 181], "length", [("default", 0, 4)])
    assert piece.logprobs == [-5.3451385498046875, -5.502311706542969, -5.765437602996826, -5.601590633392334]
    cut = piece_of(RECORDED["abort"]["answer"], "it")
    assert cut.finish == "abort" and len(cut.tokens) == len(cut.logprobs) == 2 and cut.labels == [("x:1", 0, 2)]
    for broken in ({"choices": []}, {"choices": [{"token_ids": [1], "logprobs": None, "finish_reason": "stop"}]}, None):
        with pytest.raises(PolicyError, match="it answered with"):
            piece_of(broken, "it")


def test_the_stub_answers_as_the_recorded_server_and_we_ask_as_it_was_asked(stub: Any, parts: Any) -> None:
    """What the stub leaves out, nobody here reads."""
    server = stub()
    answers: dict[str, Any] = {}

    async def main() -> None:
        remote = Remote(server.url, timeout=10, patience=5)
        ask = remote._ask

        async def noted(verb: str, path: str, **how: Any) -> Any:
            answers[f"{verb} {path}"] = await ask(verb, path, **how)
            return answers[f"{verb} {path}"]

        remote._ask = noted  # type: ignore[method-assign]
        await remote.start()
        await remote.score(parts.prompt, None)
        await remote.pause()
        await remote.resume("a:1")
        await remote.generate(parts.prompt, {"max_tokens": 2}, None)
        await remote.close()

    asyncio.run(main())
    for name in ("models", "reset", "label", "resume", "pause", "generate"):
        real, ours = RECORDED[name]["answer"], answers[RECORDED[name]["route"]]
        assert set(ours) <= set(real), name
    real, ours = RECORDED["generate"]["answer"]["choices"][0], answers["POST /inference/v1/generate"]["choices"][0]
    assert set(ours) <= set(real) and set(ours["logprobs"]["content"][0]) == set(real["logprobs"]["content"][0])
    assert set(ours["weight_versions"][0]) == set(real["weight_versions"][0])
    asked = dict(server.seen)["/inference/v1/generate"]
    assert set(asked) == set(RECORDED["generate"]["request"])


def test_tokens_logprobs_seeds_and_versions(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    p = policy(server)
    assert isinstance(p, Policy) and p.wants == "tokens"

    async def ask(episode: str, seed: int) -> Completion:
        return await p.complete(Request(episode, seed, parts.prompt), Sampling(max_tokens=12, top_p=0.9, top_k=5))

    async def script() -> None:
        one, same, other = await asyncio.gather(ask("a", 1), ask("b", 1), ask("c", 2))
        assert one.tokens == same.tokens != other.tokens and one.version == 0 and one.text == parts.renderer.decode(one.tokens)
        assert other.logprobs == pytest.approx(parts.logprobs(parts.prompt, other.tokens), abs=1e-5)
        parts.shake(1)
        p.load(None, 7)
        after = await ask("d", 1)
        assert after.version == 7 and after.logprobs == pytest.approx(parts.logprobs(parts.prompt, after.tokens), abs=1e-5)
        state = {n: t * 1.5 for n, t in parts.model.state_dict().items()}
        p.load(state, 8)
        after = await ask("d", 1)
        assert after.version == 8 and after.logprobs == pytest.approx(parts.logprobs(parts.prompt, after.tokens), abs=1e-5)
        numbers = p.metrics()
        assert numbers["engine/pushes"] == 3 and numbers["engine/probe_max"] < 1e-5 and numbers["engine/restarts"] == 0

    play(p, script)
    how = next(body for path, body in server.seen if path == "/inference/v1/generate" and "logprobs" in body["sampling_params"])
    assert how["sampling_params"] == {
        "max_tokens": 12, "temperature": 1.0, "top_p": 0.9, "top_k": 5, "seed": how["sampling_params"]["seed"], "ignore_eos": True,
        "stop_token_ids": sorted(parts.renderer.stop_ids), "skip_special_tokens": False, "logprobs": 0,
    }  # fmt: skip
    files = [body["args"][0] for path, body in server.seen if path == "/collective_rpc"]
    assert len(set(files)) == 3 and not any(Path(f).exists() for f in files), "pushed files are removed"


def test_weights_that_change_in_the_middle_of_a_turn(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    p = policy(server)
    parts.renderer.stop_ids = frozenset()

    async def script() -> None:
        await p.complete(Request("w", 3, parts.prompt), Sampling(max_tokens=1))
        server.delay = 0.01
        turn = asyncio.create_task(p.complete(Request("e", 3, parts.prompt), Sampling(max_tokens=60)))
        await asyncio.sleep(0.2)
        old = {n: t.clone() for n, t in parts.model.state_dict().items()}
        parts.shake(2)
        p.load(None, 1)
        c = await turn
        n = c.version.count(0)
        assert 0 < n < 60 and c.version == [0] * n + [1] * (60 - n) and len(c.tokens) == 60 and c.finish == "length"
        assert c.logprobs[n:] == pytest.approx(parts.logprobs(parts.prompt + c.tokens[:n], c.tokens[n:]), abs=1e-5)
        parts.model.load_state_dict(old)
        assert c.logprobs[:n] == pytest.approx(parts.logprobs(parts.prompt, c.tokens[:n]), abs=1e-5)
        assert server.aborted == 1 and p.metrics()["engine/aborted"] == 1
        # With stop strings the turn is sampled anew: one may lie across the cut.
        turn = asyncio.create_task(p.complete(Request("e", 3, parts.prompt), Sampling(max_tokens=60, stop=("zzz",))))
        await asyncio.sleep(0.2)
        p.load(None, 2)
        c = await turn
        assert c.version == 2 and len(c.tokens) == 60

    play(p, script)


def test_a_released_or_cancelled_turn_is_aborted_at_the_server(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    p = policy(server)
    parts.renderer.stop_ids = frozenset()

    async def script() -> None:
        await p.complete(Request("w", 3, parts.prompt), Sampling(max_tokens=1))
        server.delay = 0.01
        for n, end in enumerate((lambda t: p.release("gone"), lambda t: t.cancel()), 1):
            turn = asyncio.create_task(p.complete(Request("gone", 3, parts.prompt), Sampling(max_tokens=200)))
            await asyncio.sleep(0.1)
            end(turn)
            with pytest.raises(asyncio.CancelledError):
                await turn
            for _ in range(100):
                await asyncio.sleep(0.02)
                if server.disconnected == n:
                    break
            assert server.disconnected == n

    play(p, script)


def test_an_episode_stays_at_its_server_and_another_one_takes_over(stub: Any, parts: Any, policy: Any) -> None:
    a, b = stub(), stub()
    p = policy(a, b)
    asked = lambda s: sum(path == "/inference/v1/generate" for path, _ in s.seen)  # noqa: E731

    async def turn(episode: str) -> Completion:
        return await p.complete(Request(episode, 1, parts.prompt), Sampling(max_tokens=3))

    async def script() -> None:
        await asyncio.gather(*(turn(f"e{i}") for i in range(6)))
        assert abs(asked(a) - asked(b)) <= 1, "the least busy one is asked"
        before = asked(a), asked(b)
        for _ in range(4):
            await turn("e0")
        assert sorted((asked(a) - before[0], asked(b) - before[1])) == [0, 4]
        parts.shake(5)
        p.load(None, 1)
        port = a.server_address[1]
        a.stop()
        found = await asyncio.gather(*(turn(f"e{i}") for i in range(6)))
        assert {c.version for c in found} == {1}
        again = stub(port=port)  # as the folder has it: it must not be asked before it has the weights
        while asked(again) < 2:
            await asyncio.sleep(0.05)
            c = await turn(f"late{asked(b)}")
            assert c.logprobs == pytest.approx(parts.logprobs(parts.prompt, c.tokens), abs=1e-5) and c.version == 1
        assert p.metrics()["engine/restarts"] == 1 and any(path == "/collective_rpc" for path, _ in again.seen)

    play(p, script)


def test_a_server_that_was_restarted_unnoticed_gets_its_weights_and_the_turn_is_sampled_again(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    p = policy(server)

    async def script() -> None:
        await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=3))
        parts.shake(3)
        p.load(None, 4)
        server.restart()
        c = await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=8))
        assert c.version == 4 and c.logprobs == pytest.approx(parts.logprobs(parts.prompt, c.tokens), abs=1e-5)
        server.label = "0123abcd:9"
        with pytest.raises(PolicyError, match=r"'0123abcd:9', which another trainer pushed"):
            await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=3))

    play(p, script)


@pytest.mark.parametrize(("fault", "says"), [("deaf", "scores a probe of 64 tokens exactly as before"), ("stale_head", "differ by up to")])
def test_a_push_that_does_not_arrive_stops_the_run(stub: Any, parts: Any, policy: Any, fault: str, says: str) -> None:
    server = stub()
    p = policy(server)

    async def script() -> None:
        await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=3))
        setattr(server, fault, True)
        parts.shake(3, size=0.0005 if fault == "deaf" else 0.1)  # even a step that the tolerance would let pass
        with pytest.raises(PolicyError, match=f"(?s){says}.*tied embeddings.*agentgym serve vllm"):
            p.load(None, 1)

    play(p, script)


def test_servers_that_cannot_be_used(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    server.gone.add("/pause")
    request = Request("e", 1, parts.prompt)

    async def fails(p: vllm, match: str) -> None:
        for _ in range(2):  # the second episode is told the same, at once
            with pytest.raises(PolicyError, match=match):
                await p.complete(request, Sampling())

    p = policy(server)
    play(p, lambda: fails(p, "has no route /pause, so weights cannot be pushed to it: start it with `agentgym serve vllm"))
    p = vllm(parts.model, parts.renderer, urls=("http://127.0.0.1:9",), patience=0.3)
    play(p, lambda: fails(p, "127.0.0.1:9 cannot be used: no answer within 0.3 s .*ConnectError"))
    server.gone.clear()
    p = policy(server, push_dir=str(parts.folder / "push"))
    play(p, lambda: p.complete(request, Sampling(max_tokens=1)))
    assert list((parts.folder / "push").iterdir()) == []


def test_a_server_that_is_gone_for_good(stub: Any, parts: Any, policy: Any) -> None:
    server = stub()
    p = policy(server, patience=0.5)

    async def script() -> None:
        await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=1))
        server.stop()
        with pytest.raises(PolicyError, match=r"no engine came back within 0.5 s .policy.patience.*127.0.0.1"):
            await p.complete(Request("f", 1, parts.prompt), Sampling(max_tokens=1))

    play(p, script)


def test_a_server_that_hangs_is_as_good_as_gone(stub: Any, parts: Any, policy: Any) -> None:
    slow, other = stub(), stub()
    p = policy(slow, other, timeout=1.0)

    async def script() -> None:
        await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=1))
        home = slow if sum(path == "/inference/v1/generate" for path, _ in slow.seen) > 1 else other  # the probe is the other one
        home.delay = 30.0
        c = await p.complete(Request("e", 1, parts.prompt), Sampling(max_tokens=3))
        assert c.version == 0 and p.metrics()["engine/restarts"] == 1

    play(p, script)


def test_prompts_that_cannot_be_answered(stub: Any, parts: Any, policy: Any) -> None:
    p = policy(stub(), max_context=40)

    async def script() -> None:
        with pytest.raises(PolicyError, match="sends no tokens"):
            await p.complete(Request("e", 1), Sampling())
        with pytest.raises(PolicyError, match="has 40 tokens, the limit is 40"):
            await p.complete(Request("e", 1, parts.prompt * 4), Sampling())
        assert len((await p.complete(Request("e", 1, parts.prompt * 3 + [5] * 7), Sampling(max_tokens=32))).tokens) <= 3

    play(p, script)
    with pytest.raises(PolicyError, match="closed"):
        asyncio.run(p.complete(Request("e", 1, parts.prompt), Sampling()))


def test_configurations_that_cannot_work(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            vllm(parts.model, parts.renderer, **options)

    refused("'localhost:1' is no URL", urls=("localhost:1",))
    refused("kv_gb, gpu_memory.*for an engine in this process", urls=("http://localhost:1",), kv_gb=1.0)
    refused("policy.patience must be positive", urls=("http://localhost:1",), patience=0.0)
    refused("dtype 'fp8' is unknown", urls=("http://localhost:1",), dtype="fp8")
    refused("'logprobs_mode' is set by agentgym", engine={"logprobs_mode": "raw_logprobs"})
    if not torch.cuda.is_available():
        refused("push=nccl moves weights between GPUs", push="nccl", urls=("http://localhost:1",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused("needs the package vllm in this environment")
    parts.model.config.head_dim = 16
    if not torch.cuda.is_available():
        refused("needs heads of 32 channels or more, this model has 16", urls=("http://localhost:1",))
    parts.model.config.agentgym_reserved = {"plus": 1, "minus": 2, "scale": 1.0}
    refused("cannot leave out the reserved tokens", urls=("http://localhost:1",))


def test_a_whole_run(stub: Any, toy_layer: dict[str, Any], tmp_path: Path) -> None:
    """The trainer and the stub disagree by rounding only, and every update says so."""
    from agentgym.trainers import setup
    from agentgym.trainers.model import load_model, save_model

    size = {**toy_layer["model"], "head_dim": 32}
    merged = merge({}, normalise(toy_layer, "test"))
    base = build(merged)
    model, tokenizer = load_model("tiny", corpus=setup.corpus(base), **{k: v for k, v in size.items() if k != "name"})
    server = stub(save_model(model, tokenizer, tmp_path / "toy"))
    toy_layer["model"] = {"name": str(tmp_path / "toy")}
    over = {"policy": {"name": "vllm", "urls": [server.url]}, "run": {"dir": str(tmp_path / "run")}}
    config = build(merge(merge({}, normalise(toy_layer, "test")), normalise(over, "test")))
    config.stages["rl"]["weights"] = {"mismatch": {"name": "mismatch"}}
    config.stages["rl"]["objectives"] = {"decoupled_clip": {"name": "decoupled_clip"}}
    train(config)
    rows = [r for r in store.read_lines(tmp_path / "run" / "metrics.jsonl") if r.get("stage") == "rl" and "loss" in r]
    assert [r["engine/pushes"] for r in rows] == [4.0, 5.0]  # at the start, and after each of two warm and two RL updates
    for r in rows:
        assert r["mismatch/max"] < 1e-4 and r["mismatch/mean"] <= r["mismatch/max"] and r["rollout/errors"] == 0 and r["engine/probe_max"] < 1e-4
    config.run.workers, config.run.dir = 2, str(tmp_path / "two")
    with pytest.raises(ConfigError, match=r"policy 'vllm' works in one process: set run.workers=1"):
        train(config)
