"""A transformers model in this process: continuous batching over the turns of many episodes, each with its own key-value slot.

Every tick feeds what each row has waiting in one packed forward pass: one token for a row that is writing, the new part
of the prompt for a row whose turn just began. An episode keeps its slot between turns, so only what it has not seen yet
is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.types import Completion, Sampling

from ..model import base_model
from ._sample import draw, uniforms
from ._seats import Feed, Row, Seats
from ._slots import NAME, Slots, make_plan


class hf:
    """Policy over a transformers causal language model.

    slots           conversations kept in the cache at once; more of them wait for a place
    max_context     longest context in tokens, prompt and completion together; 0 = the model's own limit
    prefill_tokens  most prompt tokens computed in one tick: bounds memory, and how long writing rows wait for long
                    prompts
    patience        ticks that an episode between two turns keeps its slot while others wait for one
    """

    wants = "tokens"
    shards = True  # plays with what ranks.Ranks.whole gathers

    def __init__(
        self,
        model: torch.nn.Module,
        renderer: Renderer,
        *,
        slots: int = 256,
        max_context: int = 0,
        prefill_tokens: int = 8192,
        patience: int = 8,
    ) -> None:
        for name, value, least in (
            ("slots", slots, 1),
            ("max_context", max_context, 0),
            ("prefill_tokens", prefill_tokens, 1),
            ("patience", patience, 0),
        ):
            if value < least:
                raise ConfigError(f"policy.{name} must be at least {least}; got {value}")
        self.model = base_model(model)
        self.renderer = renderer
        self.version = 0
        _check_model(self.model)
        limit = int(getattr(self.model.config, "max_position_embeddings", 0) or 0)
        if max_context and limit and max_context > limit:
            raise ConfigError(f"policy.max_context={max_context} is more than the model's {limit} positions")
        self.max_context = max_context or limit or 1_000_000
        self._prefill_tokens = prefill_tokens
        self._cache = Slots()
        self._seats = Seats(slots, patience)
        self._driver: asyncio.Task[None] | None = None
        self._closed = False
        self._decoded = 0
        self._forward_seconds = self._total_seconds = 0.0

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Answer one turn. Raises PolicyError when the prompt is empty or too long, or the forward pass fails."""
        if self._closed:
            raise PolicyError("this policy is closed")
        if not request.tokens:
            raise PolicyError(f"episode {request.episode!r} sends no tokens; policy 'hf' reads request.tokens, written by a Renderer")
        if len(request.tokens) >= self.max_context:
            raise PolicyError(
                f"the prompt of episode {request.episode!r} has {len(request.tokens)} tokens, the limit is {self.max_context} with the "
                "completion; use a context that forgets (window, markov), shorter episodes, or a larger policy.max_context"
            )
        if sampling.max_tokens < 1:
            raise PolicyError(f"sampling.max_tokens must be at least 1; got {sampling.max_tokens}")
        loop = asyncio.get_running_loop()
        row = Row(request.episode, request.seed, list(request.tokens), len(request.tokens), sampling, loop.create_future())
        self._seats.waiting.append(row)
        if self._driver is None or self._driver.done():
            self._driver = loop.create_task(self._drive())
        return await row.future

    def release(self, episode: str) -> None:
        """Give an episode's slot to others; its cache is forgotten."""
        row = self._seats.release(episode)
        if row is not None and not row.future.done():
            row.future.cancel()

    def load(self, weights: Any, version: int) -> None:
        """Take new weights: a state dict, or None when the module itself was updated in place. Turns in progress go on with them."""
        if weights is not None:
            self.model.load_state_dict(weights)
        self.version = version
        self._seats.forget()

    async def close(self) -> None:
        """Stop, cancel what is waiting, and free the cache."""
        self._closed = True
        if self._driver is not None and not self._driver.done():
            self._driver.cancel()
            await asyncio.gather(self._driver, return_exceptions=True)
        self._fail(None)
        self._cache = Slots()

    def stats(self) -> dict[str, float]:
        """Return counts since the start: ticks, tokens prefilled / reused / decoded, slots evicted, seconds in forward and in total."""
        s = self._seats
        counts = {
            "ticks": s.tick,
            "prefilled": s.prefilled,
            "reused": s.reused,
            "decoded": self._decoded,
            "evicted": s.evicted,
        }
        return counts | {"forward_seconds": self._forward_seconds, "total_seconds": self._total_seconds}

    async def _drive(self) -> None:
        """Tick until nobody waits. Whatever goes wrong reaches every waiting turn: nobody hangs."""
        try:
            while self._seats.busy():
                begin = time.perf_counter()
                finished = self._tick()
                self._total_seconds += time.perf_counter() - begin
                # Whoever got an answer may need a few hops through its own awaits before it asks again; then it joins
                # the next tick.
                for _ in range(4 if finished else 1):
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._fail(None)
            raise
        except Exception as e:
            self._fail(e)

    def _fail(self, error: Exception | None) -> None:
        """Deliver an error (None: cancellation) to every turn. After an error the cache may be half written: it is dropped."""
        if error is not None:
            self._seats.forget()
        for row in self._seats.clear():
            if row.future.done() or row.future.get_loop().is_closed():
                continue
            if error is None:
                row.future.cancel()
            else:
                failure = PolicyError(f"the forward pass of {type(self.model).__name__} failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                row.future.set_exception(failure)

    def _tick(self) -> int:
        """Run one forward pass over everything that waits; return how many turns it finished."""
        self._seats.admit()
        feeds = self._seats.feeds(self._prefill_tokens)
        if not feeds:
            return 0
        logits = self._forward(feeds)
        ready = [i for i, f in enumerate(feeds) if f.row is not None]
        if not ready:
            return 0
        rows = [f.row for f in feeds if f.row is not None]
        return self._sample(rows, logits if len(ready) == len(feeds) else logits[ready])

    def _forward(self, feeds: list[Feed]) -> torch.Tensor:
        """Return the logits [R, V] float32 after the last fed id of each row."""
        used = self._seats.used()
        self._cache.reserve(used, max(f.first + len(f.ids) for f in feeds))
        begin = time.perf_counter()
        with torch.inference_mode(), _attention(self.model):
            for source, target, length in self._seats.copies:
                self._cache.copy(source, target, length)
            self._seats.copies.clear()
            plan = make_plan(self._cache, feeds, used, self.model.dtype, self.model.device)
            logits = self.model(
                input_ids=plan.ids[None],
                position_ids=plan.position[None],
                use_cache=False,
                logits_to_keep=plan.last,
                plan=plan,
            ).logits[0]
        self._forward_seconds += time.perf_counter() - begin
        return logits.float()

    def _sample(self, rows: list[Row], logits: torch.Tensor) -> int:
        """Draw a token for each row, and finish the turns that end with it."""
        seeds = np.array([r.seed & 0xFFFF_FFFF_FFFF_FFFF for r in rows], dtype=np.uint64)
        index = np.array([len(r.ids) - r.start for r in rows], dtype=np.uint64)
        settings = [r.sampling for r in rows]
        if all(s is settings[0] for s in settings):  # as a rule: then one serves all rows
            settings = settings[:1]
        with torch.inference_mode():
            tokens, logprobs = draw(logits, torch.from_numpy(uniforms(seeds, index)).to(logits.device), settings)
        finished = 0
        for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.versions.append(self.version)
            finished += self._finish(row, token)
        self._decoded += len(rows)
        return finished

    def _finish(self, row: Row, token: int) -> bool:
        """Answer a turn if `token` ended it."""
        count = len(row.ids) - row.start
        if token in self.renderer.stop_ids or (row.sampling.stop and self._stopped(row, count)):
            finish = "stop"
        elif count >= row.sampling.max_tokens or len(row.ids) >= self.max_context:
            finish = "length"
        else:
            return False
        self._seats.leave(self._seats.taken[row.episode])
        tokens = row.ids[row.start :]
        version: int | list[int] = row.versions[0] if row.versions[0] == row.versions[-1] else row.versions
        row.future.set_result(Completion(self.renderer.decode(tokens), tokens, row.logprobs, finish, version))  # type: ignore[arg-type]
        return True

    def _stopped(self, row: Row, count: int) -> bool:
        """Return whether a stop string ends in the newest token. A token has at least one byte: a short tail is enough."""
        longest = max(len(s.encode()) for s in row.sampling.stop)
        tail = self.renderer.decode(row.ids[-min(count, longest + 4) :])
        return any(s in tail for s in row.sampling.stop)


def _check_model(model: torch.nn.Module) -> None:
    """Refuse models whose attention cannot be replaced by ours."""
    name, config = type(model).__name__, getattr(model, "config", None)
    if config is None or not getattr(model, "_supports_attention_backend", False):
        raise PolicyError(f"policy 'hf' cannot run {name}: its attention is not exchangeable in transformers; use policy 'openai' with a server")
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise PolicyError(f"policy 'hf' cannot run {name}: it has {', '.join(sorted(kinds))} layers, only full attention is implemented")


@contextlib.contextmanager
def _attention(model: Any) -> Iterator[None]:
    """Let the model use our attention, and evaluation mode, for one pass; the trainer's settings come back afterwards."""
    config, before, training = model.config, model.config._attn_implementation, model.training
    config._attn_implementation = NAME
    if training:
        model.eval()
    try:
        yield
    finally:
        config._attn_implementation = before
        if training:
            model.train()
