"""Any OpenAI-compatible chat endpoint: for evaluating models that live elsewhere (a vLLM server, a vendor's API)."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import httpx

from agentgym.errors import ConfigError, PolicyError
from agentgym.formats.openai import from_wire, to_wire, tools_field
from agentgym.policy import Request, TextPolicy
from agentgym.types import Completion, Sampling

from ._pace import Pace, retry_after
from ._usage import Usage

_RETRY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_LOCAL = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}


class openai(TextPolicy):
    """Policy over `POST {base_url}/chat/completions`.

    In a tool environment with `format: openai` the tools travel in the request, the answer's `tool_calls` become the completion's text, and
    observations become messages of role tool.

    api_key_env   environment variable that holds the key; may be unset for a server on this machine
    timeout       seconds for one answer, connection included
    retries       further tries after 408, 409, 425, 5xx, a lost connection or a time-out
    backoff       seconds before the first retry; doubled each time, at most 30, with jitter, and at least what the server
                  asks for (Retry-After)
    connections   requests in flight at once
    per_minute    requests a minute; 0 = no limit of ours
    rate_wait     seconds that one request may wait, all in all, because the endpoint is over its rate limit (429); these are
                  no retries, and the whole policy pauses meanwhile
    price_in, price_out, price_cached  per million tokens, for the cost in the report: tokens read, written, and read from
                  the endpoint's cache (default: as price_in)
    length_field  name of the token limit in the request (newer OpenAI models: max_completion_tokens)
    extra         further fields of the request's body, sent as they are
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str = "OPENAI_API_KEY",
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 1.0,
        connections: int = 64,
        per_minute: float = 0.0,
        rate_wait: float = 600.0,
        price_in: float = 0.0,
        price_out: float = 0.0,
        price_cached: float | None = None,
        length_field: str = "max_tokens",
        extra: dict[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"policy.base_url={base_url!r} is no URL; expected something like http://localhost:8000/v1")
        key = os.environ.get(api_key_env, "") if api_key_env else ""
        if not key and parts.hostname not in _LOCAL:
            raise ConfigError(
                f"policy 'openai': the environment variable {api_key_env!r} (policy.api_key_env) is not set; {parts.hostname} needs a key"
            )
        if timeout <= 0 or retries < 0 or backoff < 0 or connections < 1:
            raise ConfigError("policy 'openai': timeout must be > 0, retries and backoff >= 0, connections >= 1")
        if min(per_minute, rate_wait, price_in, price_out, price_cached or 0.0) < 0:
            raise ConfigError("policy 'openai': per_minute, rate_wait and prices are at least 0")
        self.rate_wait, self._pace, self._usage = rate_wait, Pace(backoff, per_minute), Usage(price_in, price_out, price_cached)
        self.model, self.url = model, f"{base_url.rstrip('/')}/chat/completions"
        self.timeout, self.retries, self.backoff, self.connections = timeout, retries, backoff, connections
        self.length_field, self.extra = length_field, dict(extra or {})
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Semaphore(connections)

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Ask for one answer. Raises PolicyError that says what the endpoint did, after the retries are used up."""
        if not request.messages:
            raise PolicyError(f"episode {request.episode!r} sends no messages; policy 'openai' reads request.messages")
        body = self._body(request, sampling)
        attempt, refusals, limited, reason = 0, 0, 0.0, ""
        while True:
            try:
                response = await self._post(body)
            except (TimeoutError, httpx.TimeoutException):
                delay, reason = 0.0, f"no answer within {self.timeout:g} s"
            except httpx.TransportError as e:
                delay, reason = 0.0, f"{type(e).__name__}: {e}"
            else:
                if response.status_code == 200:
                    return self._completion(response, sampling.stop)
                reason = f"HTTP {response.status_code}: {response.text[:300]!r}"
                if response.status_code not in _RETRY or "insufficient_quota" in response.text:
                    raise PolicyError(f"{self.url} (model {self.model!r}) refused the request: {reason}")
                delay = retry_after(response.headers)
                if response.status_code == 429:
                    limited += self._hold(max(delay, self._pace.delay(refusals), 0.05), limited, reason)
                    refusals += 1
                    continue
            if attempt >= self.retries:
                tries = f"{self.retries + 1} {'try' if self.retries == 0 else 'tries'}"
                raise PolicyError(f"{self.url} (model {self.model!r}) gave no answer in {tries}; the last one: {reason}")
            self._usage.add(retries=1)
            await asyncio.sleep(max(min(60.0, delay), self._pace.delay(attempt)))
            attempt += 1

    def _hold(self, seconds: float, so_far: float, reason: str) -> float:
        """Pause everybody for `seconds`, and return them. Raises PolicyError when that is longer than one request may wait."""
        self._usage.add(rate_limited=1)
        if so_far + seconds > self.rate_wait:
            raise PolicyError(
                f"{self.url} (model {self.model!r}) is over its rate limit and asks to wait another {seconds:.3g} s, after {so_far:.3g} s; at most "
                f"{self.rate_wait:g} s are allowed (policy.rate_wait). Lower policy.connections or set policy.per_minute. It said: {reason}"
            )
        self._pace.hold(seconds)
        return seconds

    def usage(self) -> dict[str, float]:
        """Return counts since the start (answers, retries, tokens …), and the cost where there are prices."""
        return self._usage.report()

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        """Send one request over the running loop's connections; waiting for a free one does not count as the server's time."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections cannot outlive the loop that opened them
            limits = httpx.Limits(max_connections=self.connections, max_keepalive_connections=self.connections)
            self._client = httpx.AsyncClient(timeout=self.timeout, limits=limits)
            self._loop, self._gate = loop, asyncio.Semaphore(self.connections)
        # httpx bounds each read; a server that trickles bytes would outlive that, so the whole exchange is bounded too.
        async with self._gate:
            await self._pace.turn()
            async with asyncio.timeout(self.timeout):
                return await self._client.post(self.url, json=body, headers=self._headers)

    def _body(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": to_wire(request.messages) if _native(request) else [{"role": m.role, "content": m.content} for m in request.messages],
            self.length_field: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed & 0x7FFF_FFFF,
        }
        if _native(request):
            body["tools"] = tools_field(request.info["tools"])
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.top_k:
            body["top_k"] = sampling.top_k  # no part of OpenAI's API: a server that lacks it answers 400, which is shown
        return body | self.extra

    def _completion(self, response: httpx.Response, stop: tuple[str, ...]) -> Completion:
        where = f"{self.url} (model {self.model!r})"
        try:
            answer = response.json()
            choice = answer["choices"][0]
            message, reason = choice["message"], choice.get("finish_reason")
            text = from_wire(message) if message.get("tool_calls") else message.get("content")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
            raise PolicyError(f"{where} answered with something that is no chat completion ({type(e).__name__}: {e}): {response.text[:300]!r}") from e
        self._usage.answer(answer.get("usage"))
        if not isinstance(text, str):
            if reason != "length":  # a reasoning model may use up its budget before it says anything
                raise PolicyError(f"{where} answered without text (finish_reason {reason!r}): {response.text[:300]!r}")
            text = ""
        cut = reason == "length"
        return Completion(text if cut else _closed(text, stop), finish="length" if cut else "stop")

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None


def _native(request: Request) -> bool:
    """Return whether the environment takes the endpoint's own tool calls."""
    return request.info.get("format") == "openai" and bool(request.info.get("tools"))


def _closed(text: str, stop: tuple[str, ...]) -> str:
    """Put back a closing tag at which the endpoint stopped: chat APIs leave the stop string out, our own policies keep it."""
    for tag in stop:
        if tag.startswith("</") and not text.endswith(tag) and text.rfind(f"<{tag[2:-1]}") > text.rfind(tag):
            return text + tag
    return text
