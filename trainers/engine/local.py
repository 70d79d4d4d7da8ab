"""An engine that this process starts and owns: vLLM's AsyncLLM, whose core is a child process."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import Any

from agentgym.errors import PolicyError

from .engine import EngineLost, EngineRefused, Piece
from .settings import Settings, environment


class Local:
    """vLLM in this process. It is started by `start`, and started anew when its core has died."""

    name = "the vLLM engine in this process"
    over_http = False

    def __init__(self, settings: Settings, *, threads: int) -> None:
        self.settings, self._threads = settings, threads
        self.max_context = 0
        self.started: object = None
        self._llm: Any = None
        self._ids = itertools.count(1)
        self._adapters: dict[str, Any] = {}

    async def start(self) -> None:
        self._shutdown()
        from vllm.platforms import current_platform

        cpu = bool(current_platform.is_cpu())
        os.environ.update(environment(cpu=cpu, server=False, threads=self._threads))  # its core is a child and inherits them
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        args = self.settings.args(cpu=cpu)
        try:
            self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args, disable_log_stats=True))
        except Exception as e:
            raise EngineRefused(f"vLLM could not be started on {self.settings.model}: {type(e).__name__}: {e}. Its own words are above") from e
        self._adapters, self.started = {}, object()
        self.max_context = int(self._llm.vllm_config.model_config.max_model_len)

    async def generate(self, prompt: Sequence[int], params: dict[str, Any], adapter: str | None) -> Piece:
        out = await self._run(prompt, {**params, "logprobs": 0}, adapter)
        done = out.outputs[0]
        tokens = list(done.token_ids)
        logprobs = [row[t].logprob for row, t in zip(done.logprobs or [], tokens, strict=True)]
        labels = [(s.version, s.start, s.end) for s in done.weight_versions or []]
        return Piece(tokens, logprobs, done.finish_reason, labels)

    async def score(self, tokens: Sequence[int], adapter: str | None) -> list[float]:
        out = await self._run(tokens, {"max_tokens": 1, "prompt_logprobs": 0}, adapter)
        return [row[t].logprob for row, t in zip(out.prompt_logprobs[1:], tokens[1:], strict=True)]

    async def _run(self, prompt: Sequence[int], params: dict[str, Any], adapter: str | None) -> Any:
        from vllm import SamplingParams, TokensPrompt
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        how = SamplingParams(**params, output_kind=RequestOutputKind.FINAL_ONLY)
        answer = None
        try:
            renderer = self._llm.renderer
            (inputs,) = await renderer.render_cmpl_async([TokensPrompt(prompt_token_ids=list(prompt))], renderer.default_cmpl_tok_params)
            lora = self._adapters[adapter] if adapter else None
            async for found in self._llm.generate(inputs, how, f"agentgym-{next(self._ids)}", lora_request=lora):
                answer = found
        except (EngineDeadError, EngineGenerateError) as e:
            raise EngineLost(f"{type(e).__name__}: {e}") from e
        except (VLLMClientError, ValueError) as e:
            raise EngineRefused(f"vLLM refused a request: {e}") from e
        if answer is None:
            raise EngineLost("it ended a request without an answer")
        return answer

    async def pause(self) -> None:
        with self._lost():
            await self._llm.pause_generation(mode="abort")

    async def resume(self, label: str) -> None:
        with self._lost():
            if not await self._llm.reset_prefix_cache():
                raise PolicyError("vLLM could not forget its cached prefixes, which belong to the old weights")
            await self._llm.update_weight_version(label)
            await self._llm.resume_generation()

    async def load(self, path: str) -> None:
        with self._lost():
            await self._llm.collective_rpc("agentgym_load", args=(path,))

    async def adapt(self, name: str, folder: str, old: str | None) -> None:
        from vllm.lora.request import LoRARequest

        with self._lost():
            if old in self._adapters:
                await self._llm.remove_lora(self._adapters.pop(old).lora_int_id)
            self._adapters[name] = LoRARequest(name, next(self._ids), folder)
            await self._llm.add_lora(self._adapters[name])

    async def call(self, method: str, payload: dict[str, Any] | None) -> Any:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

        with self._lost():
            if method == "world_size":
                return self._llm.vllm_config.parallel_config.world_size_across_dp
            fn = getattr(self._llm, method)
            if method == "init_weight_transfer_engine":
                return await fn(WeightTransferInitRequest(init_info=payload or {}))
            if method == "update_weights":
                return await fn(WeightTransferUpdateRequest(update_info=payload or {}))
            return await fn()

    @contextlib.contextmanager
    def _lost(self) -> Any:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError as e:
            raise EngineLost(f"{type(e).__name__}: {e}") from e

    def _shutdown(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown(timeout=10)

    async def close(self) -> None:
        self._shutdown()
