"""An engine elsewhere: a vLLM server, as `agentgym serve vllm` starts it, over its own HTTP routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from agentgym.errors import ConfigError, PolicyError

from .engine import EngineLost, EngineRefused, Piece

_POLL = 0.5  # seconds between two looks at a server that does not answer
START = "start it with `agentgym serve vllm MODEL`, or with --worker-extension-cls agentgym.trainers.engine.extension.Extension, "
START += "--logprobs-mode processed_logprobs, --generation-config vllm, --enable-scale-out and VLLM_SERVER_DEV_MODE=1"


class _Unknown(EngineLost):
    """The server does not know the adapters that a request names: it was restarted since they were pushed."""


class Remote:
    """One server.

    url       where it is, such as http://127.0.0.1:8000
    timeout   seconds for one answer
    patience  seconds to wait for a server that is not there (yet)
    """

    over_http = True

    def __init__(self, url: str, *, timeout: float, patience: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"policy.urls: {url!r} is no URL; expected something like http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.name = f"the vLLM server {self.url}"
        self.timeout, self.patience = timeout, patience
        self.max_context = 0
        self.model = ""
        self.started: object = None
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Wait until the server answers, and ask what it serves."""
        until = time.monotonic() + self.patience
        while True:
            try:
                models = await self._ask("GET", "/v1/models")
                break
            except EngineLost as e:
                if time.monotonic() > until:
                    raise EngineLost(f"no answer within {self.patience:g} s ({e})") from e
                await asyncio.sleep(_POLL)
        served = models["data"][0]  # adapters come after it
        self.model, self.max_context = str(served["id"]), int(served["max_model_len"])
        self.started = object()

    async def generate(self, prompt: Sequence[int], params: dict[str, Any], adapter: str | None) -> Piece:
        answer = await self._tokens(prompt, {**params, "logprobs": 0}, adapter)
        return piece_of(answer, self.name)

    async def score(self, tokens: Sequence[int], adapter: str | None) -> list[float]:
        answer = await self._tokens(tokens, {"max_tokens": 1, "prompt_logprobs": 0}, adapter)
        rows = answer["prompt_logprobs"][1:]
        return [float(row[str(t)]["logprob"]) for row, t in zip(rows, tokens[1:], strict=True)]

    async def _tokens(self, prompt: Sequence[int], params: dict[str, Any], adapter: str | None) -> Any:
        body = {"model": adapter or self.model, "token_ids": list(prompt), "sampling_params": params}
        return await self._ask("POST", "/inference/v1/generate", json=body)

    async def pause(self) -> None:
        await self._ask("POST", "/pause", params={"mode": "abort"})

    async def resume(self, label: str) -> None:
        await self._ask("POST", "/reset_prefix_cache")
        await self._ask("POST", "/update_weight_version", json={"new_version": label})
        await self._ask("POST", "/resume")

    async def load(self, path: str) -> None:
        await self._ask("POST", "/collective_rpc", json={"method": "agentgym_load", "args": [path]})

    async def adapt(self, name: str, folder: str, old: str | None) -> None:
        if old is not None:
            try:
                await self._ask("POST", "/v1/unload_lora_adapter", json={"lora_name": old})
            except (EngineRefused, _Unknown):  # a server that was restarted never had them
                pass
        await self._ask("POST", "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": folder})

    async def call(self, method: str, payload: dict[str, Any] | None) -> Any:
        if method == "world_size":
            return (await self._ask("GET", "/get_world_size"))["world_size"]
        key = {"init_weight_transfer_engine": "init_info", "update_weights": "update_info"}.get(method)
        return await self._ask("POST", f"/{method}", json={key: payload} if key else None)

    async def _ask(self, verb: str, path: str, **how: Any) -> Any:
        """Return the JSON that a route answers with. Raises EngineLost where asking again may help, else EngineRefused."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=512)
            self._client = httpx.AsyncClient(base_url=self.url, timeout=httpx.Timeout(self.timeout, connect=10.0), limits=limits)
        try:
            async with asyncio.timeout(self.timeout):
                try:
                    answer = await self._client.request(verb, path, **how)
                except (httpx.ReadError, httpx.RemoteProtocolError):  # a connection that the server closed while it lay idle: once more, anew
                    answer = await self._client.request(verb, path, **how)
        except TimeoutError as e:
            raise EngineLost(f"{path}: no answer within {self.timeout:g} s (policy.timeout)") from e
        except httpx.TransportError as e:
            raise EngineLost(f"{path}: {type(e).__name__} {e}".rstrip()) from e
        if answer.status_code >= 500:
            raise EngineLost(f"{path}: HTTP {answer.status_code}: {answer.text[:300]!r}")
        if answer.status_code == 404 and ("does not exist" in answer.text or "cannot be found" in answer.text):
            raise _Unknown(f"{path}: {answer.text[:300]!r}")
        if answer.status_code == 404:
            raise EngineRefused(f"{self.name} has no route {path}, so weights cannot be pushed to it: {START}")
        if answer.status_code == 403:
            raise EngineRefused(f"{self.name} does not take token ids ({answer.text[:200]!r}): {START}")
        if answer.status_code >= 400:
            raise EngineRefused(f"{self.name} refused {path}: HTTP {answer.status_code}: {answer.text[:300]!r}")
        return answer.json() if answer.content and "json" in answer.headers.get("content-type", "") else None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def piece_of(answer: Any, who: str) -> Piece:
    """Read an answer of /inference/v1/generate. Raises PolicyError when it is none."""
    try:
        choice = answer["choices"][0]
        tokens = [int(t) for t in choice["token_ids"]]
        content = (choice["logprobs"] or {}).get("content") or []
        logprobs = [float(row["logprob"]) for row, t in zip(content, tokens, strict=True) if row["token_id"] == t]
        labels = [(str(s["version"]), int(s["start"]), int(s["end"])) for s in choice.get("weight_versions") or []]
        finish = choice["finish_reason"]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise PolicyError(f"{who} answered with something that is no completion ({type(e).__name__}: {e}): {str(answer)[:300]}") from e
    if finish not in ("stop", "length", "abort") or len(logprobs) != len(tokens):
        raise PolicyError(f"{who} answered with finish_reason {finish!r}, {len(tokens)} tokens and {len(logprobs)} log-probabilities of them")
    return Piece(tokens, logprobs, finish, labels)
