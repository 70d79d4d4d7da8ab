"""Weights pushed from GPU to GPU, by vLLM's own weight transfer. Needs real GPUs: two for NCCL, one for IPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from agentgym.policy import Request
from agentgym.trainers.policy.vllm import vllm
from agentgym.types import Sampling

pytest.importorskip("vllm", reason="the package vllm is not installed here: run .ci/vllm")

GPUS = torch.cuda.device_count()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "push",
    [
        pytest.param("path", marks=pytest.mark.skipif(GPUS < 1, reason="needs a GPU: the layerwise reload of a worker on a GPU")),
        pytest.param("ipc", marks=pytest.mark.skipif(GPUS < 1, reason="needs a GPU: CUDA IPC shares its memory between processes")),
        pytest.param("nccl", marks=pytest.mark.skipif(GPUS < 2, reason="needs two GPUs: NCCL does not connect two processes on one")),
    ],
)
def test_a_push_on_gpus(parts: Any, push: str) -> None:
    parts.model.to(f"cuda:{GPUS - 1}")
    policy, prompt = vllm(parts.model, parts.renderer, push=push, gpu_memory=0.2, tolerance=2e-2), parts.prompt()  # type: ignore[arg-type]

    async def main() -> None:
        try:
            for version in range(3):
                if version:
                    parts.shake(0.05, seed=version)
                    policy.load(None, version)
                c = await policy.complete(Request(f"e{version}", 1, prompt), Sampling(max_tokens=16))
                assert c.version == version
        finally:
            await policy.close()

    asyncio.run(main())
