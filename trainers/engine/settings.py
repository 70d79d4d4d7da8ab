"""How a vLLM engine is started for us: its arguments and its environment, the same in process and as a server."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Literal

from agentgym.errors import ConfigError

Push = Literal["path", "nccl", "ipc"]
EXTENSION = "agentgym.trainers.engine.extension.Extension"
# What we set and nobody may set otherwise: token ids in and out, log-probabilities of the distribution that was drawn from, weights pushed.
OURS = {"model", "logprobs_mode", "worker_extension_cls", "enable_prefix_caching", "weight_transfer_config", "generation_config", "enable_lora"}


@dataclass(frozen=True)
class Settings:
    """What an engine needs to know.

    model            a folder in Hugging Face format
    dtype            float32, bfloat16 …; "auto": what the folder says
    max_context      tokens of prompt and completion; 0: the model's own limit
    kv_gb            gigabytes for the key-value cache; 0: 1 on a CPU, what `gpu_memory` leaves on a GPU
    gpu_memory       share of each GPU's memory that the engine may take
    tensor_parallel  GPUs that share one engine
    push             how weights arrive
    lora_rank        largest rank of adapters that are pushed; 0: none
    dummy            start without reading the folder's weights, since the first push brings them
    extra            further engine arguments of vLLM, under their Python names
    """

    model: str
    dtype: str = "auto"
    max_context: int = 0
    kv_gb: float = 0.0
    gpu_memory: float = 0.5
    tensor_parallel: int = 1
    push: Push = "path"
    lora_rank: int = 0
    dummy: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in sorted(OURS & set(self.extra)):
            raise ConfigError(f"the engine argument {name!r} is set by agentgym and cannot be changed: training depends on it")
        if self.kv_gb < 0 or not 0 < self.gpu_memory <= 1 or self.tensor_parallel < 1 or self.max_context < 0 or self.lora_rank < 0:
            raise ConfigError("vllm: kv_gb, max_context and lora rank are at least 0, gpu_memory in (0, 1], tensor_parallel at least 1")

    def args(self, *, cpu: bool) -> dict[str, Any]:
        """Return vLLM's engine arguments."""
        if cpu and self.push != "path":
            raise ConfigError(f"push={self.push} moves weights between GPUs, and there is none here: use push=path")
        out: dict[str, Any] = {
            "model": self.model,
            "dtype": self.dtype,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "enable_prefix_caching": True,
            "worker_extension_cls": EXTENSION,
            "gpu_memory_utilization": self.gpu_memory,
            "tensor_parallel_size": self.tensor_parallel,
        }
        if cpu:
            out["enforce_eager"] = True  # compiling costs more than it gains
            # A prompt that is computed in parts, of a request with a seed, ends the engine: "CPU Generator does not use offset" (vLLM 0.32).
            out["enable_chunked_prefill"] = False
        if self.max_context:
            out["max_model_len"] = self.max_context
        if self.kv_gb or cpu:
            out["kv_cache_memory_bytes"] = int((self.kv_gb or 1.0) * 2**30)
        if self.push != "path":
            out["weight_transfer_config"] = {"backend": self.push}
        if self.lora_rank:
            out |= {"enable_lora": True, "max_lora_rank": lora_rank(self.lora_rank), "max_loras": 1, "max_cpu_loras": 2}
        if self.dummy:
            out["load_format"] = "dummy"
        return out | self.extra

    def flags(self, *, cpu: bool) -> list[str]:
        """Return the same as flags of vLLM's server."""
        out: list[str] = []
        for name, value in self.args(cpu=cpu).items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                out.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                out += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
        return out


def lora_rank(rank: int) -> int:
    """Return the smallest rank that vLLM has kernels for and that holds `rank`."""
    allowed = (8, 16, 32, 64, 128, 256, 320, 512)
    for r in allowed:
        if r >= rank:
            return r
    raise ConfigError(f"model.lora.r={rank} is more than vLLM serves; at most {allowed[-1]}")


def environment(*, cpu: bool, server: bool, threads: int) -> dict[str, str]:
    """Return the environment variables that an engine needs; what the user has set stays, but for what pushing depends on."""
    needed = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if server:
        # The routes for pausing and pushing; adapters by path; IPC handles travel as pickles between processes of one user.
        needed |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    wanted = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}
    if cpu:
        # Several engines that each bind their threads to "the" cores would share one of them.
        wanted |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    return {k: v for k, v in wanted.items() if k not in os.environ} | needed
