"""Policy vllm with an engine in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.errors import PolicyError
from agentgym.policy import Request
from agentgym.trainers.engine import weights
from agentgym.trainers.policy.vllm import vllm
from agentgym.types import Sampling

pytest.importorskip("vllm", reason="the package vllm is not installed here: run .ci/vllm")

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def play(policy: vllm, script: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await script()
        finally:
            await policy.close()

    return asyncio.run(main())


def test_generation_pushes_and_aborts(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine serves all of it, since starting one takes most of a minute."""
    policy = vllm(parts.model, parts.renderer, kv_gb=0.25)
    prompt = parts.prompt()

    async def ask(seed: int = 1, episode: str = "e", **how: Any) -> Any:
        return await policy.complete(Request(episode, seed, prompt), Sampling(**{"max_tokens": 24, "temperature": 0.7, **how}))

    async def script() -> None:
        # -- log-probabilities are those of transformers, under the tempered distribution; the seed decides
        first, again, other = await asyncio.gather(ask(episode="a"), ask(episode="b"), ask(seed=2, episode="c"))
        assert first.tokens == again.tokens != other.tokens
        for c in (first, other):
            assert c.version == 0 and c.text == parts.renderer.decode(c.tokens)
            assert c.logprobs == pytest.approx(parts.logprobs(prompt, c.tokens, 0.7), abs=1e-4)
        greedy = await ask(temperature=0.0)
        assert greedy.logprobs == pytest.approx(parts.logprobs(prompt, greedy.tokens), abs=1e-4)
        # -- stop strings are kept, as in policy hf; stop ids end a turn and are part of it
        long = await ask(max_tokens=60)
        at = next(
            i for i, t in enumerate(long.tokens) if i > 3 and parts.renderer.decode([t]).strip().isascii() and parts.renderer.decode([t]).strip()
        )
        word = parts.renderer.decode([long.tokens[at]]).strip()
        stopped = await ask(max_tokens=60, stop=(word,))
        assert stopped.finish == "stop" and stopped.text.endswith(word) and len(stopped.tokens) <= at + 1
        assert stopped.tokens == long.tokens[: len(stopped.tokens)]
        ends = [await ask(seed=s, max_tokens=400, temperature=1.5) for s in range(3, 6)]
        for c in ends:
            cut = [i for i, t in enumerate(c.tokens) if t in parts.renderer.stop_ids]
            assert cut == ([len(c.tokens) - 1] if c.finish == "stop" else [])
        assert any(c.finish == "stop" for c in ends)
        # -- the context's end is a length, and a prompt beyond it an error
        c = await policy.complete(Request("long", 1, prompt * 21), Sampling(max_tokens=50))
        assert len(c.tokens) <= 512 - 24 * 21
        with pytest.raises(PolicyError, match="has 528 tokens, the limit is 512"):
            await policy.complete(Request("long", 1, prompt * 22), Sampling(max_tokens=50))
        # -- new weights arrive, tied head included, and the next completion is theirs
        parts.shake(0.1, seed=3)
        policy.load(None, 1)
        after = await ask()
        assert after.version == 1 and after.tokens != first.tokens
        assert after.logprobs == pytest.approx(parts.logprobs(prompt, after.tokens, 0.7), abs=1e-4)
        numbers = policy.metrics()
        assert numbers["engine/pushes"] == 2 and numbers["engine/probe_max"] < 1e-4 and numbers["engine/push_seconds"] < 10
        # -- weights that change in the middle of a turn: each token has the version that wrote it, and its log-probability
        policy.renderer = copy = _no_stop(parts.renderer)
        turn = asyncio.create_task(policy.complete(Request("mid", 9, prompt), Sampling(max_tokens=400)))
        await asyncio.sleep(0.5)
        old = parts.model.state_dict()
        old = {n: t.clone() for n, t in old.items()}
        parts.shake(0.05, seed=4)
        policy.load(None, 2)
        c = await turn
        assert isinstance(c.version, list) and set(c.version) == {1, 2} and c.version == sorted(c.version) and len(c.tokens) == 400
        n = c.version.count(1)
        assert c.logprobs[n:] == pytest.approx(parts.logprobs(prompt + c.tokens[:n], c.tokens[n:]), abs=1e-4)
        new = {k: t.clone() for k, t in parts.model.state_dict().items()}
        parts.model.load_state_dict(old)
        assert c.logprobs[:n] == pytest.approx(parts.logprobs(prompt, c.tokens[:n]), abs=1e-4)
        parts.model.load_state_dict(new)
        assert copy is not parts.renderer
        # -- an episode that is released stops sampling at once
        turn = asyncio.create_task(policy.complete(Request("gone", 9, prompt), Sampling(max_tokens=480)))
        await asyncio.sleep(0.2)
        policy.release("gone")
        with pytest.raises(asyncio.CancelledError):
            await turn
        llm = policy._running[1].members[0].engine._llm  # type: ignore[index,attr-defined]
        for _ in range(50):
            if not llm.output_processor.has_unfinished_requests():
                break
            await asyncio.sleep(0.05)
        assert not llm.output_processor.has_unfinished_requests()

        # -- a push that leaves out the tied embedding, so that the head is stale, is noticed
        def stale(model: torch.nn.Module, path: Path, dtype: Any = None) -> Path:
            from safetensors.torch import save_file

            save_file({n: t.contiguous() for n, t in weights.named(model) if "embed_tokens" not in n}, path)
            return path

        monkeypatch.setattr(weights, "write", stale)
        parts.shake(0.05, seed=5)
        with pytest.raises(PolicyError, match=r"disagree about a probe of 64 tokens.*tied embeddings"):
            policy.load(None, 3)

    play(policy, script)


def _no_stop(renderer: Any) -> Any:
    import copy

    out = copy.copy(renderer)
    out.stop_ids = frozenset()
    return out


def test_adapters_are_pushed_as_adapters(make_parts: Any, tmp_path: Path) -> None:
    parts = make_parts(tmp_path / "model", lora=True)
    policy, prompt = vllm(parts.model, parts.renderer, kv_gb=0.25), parts.prompt()

    async def script() -> None:
        found = []
        for version in range(3):
            if version:
                parts.shake(0.2, seed=version)
                policy.load(None, version)
            c = await policy.complete(Request(f"e{version}", 1, prompt), Sampling(max_tokens=24))
            assert c.version == version and c.logprobs == pytest.approx(parts.logprobs(prompt, c.tokens), abs=1e-4)
            found.append(c.tokens)
        assert found[0] != found[1] != found[2]
        assert policy.metrics()["engine/probe_max"] < 1e-4

    play(policy, script)
