"""Weights from GPU to GPU, by vLLM's own weight transfer: NCCL between devices and machines, CUDA IPC on one device's memory."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError

from .settings import Push
from .weights import named

Call = Callable[[str, dict[str, Any] | None], Any]


def check(push: Push) -> None:
    """Raise ConfigError where there are no GPUs to push between."""
    if push != "path" and not torch.cuda.is_available():
        raise ConfigError(f"policy.push={push} moves weights between GPUs, and this PyTorch sees none: use policy.push=path")


class _Client:
    """The four calls that vLLM's trainer side makes; each blocks until the engine has answered.

    call  asks the engine: (method, payload) → answer
    http  the payload travels as JSON, so that IPC handles have to be pickled
    """

    def __init__(self, call: Call, *, http: bool) -> None:
        self._call, self._http = call, http

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._call("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        self._call("start_weight_update", None)

    def update_weights(self, update_info: Any) -> None:
        from vllm.distributed.weight_transfer.clients import _json_safe_update_payload

        self._call("update_weights", _json_safe_update_payload(update_info) if self._http else update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._call("finish_weight_update", None)


def open_transfer(push: Push, model: nn.Module, call: Call, *, http: bool, dtype: torch.dtype | None) -> Any:
    """Meet with one engine and return vLLM's trainer side; its `send_weights()` pushes the model's present weights. Blocks."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    class Source(WeightSource):
        """The trainer's parameters under Hugging Face names."""

        def metadata(self) -> list[Any]:
            return [ParamMeta(n, t.dtype, tuple(t.shape)) for n, t in named(model, dtype)]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            return named(model, dtype)

    if push == "ipc":
        info: Any = IPCTrainerInitInfo(rank=0)
    else:
        info = NCCLTrainerInitInfo(_address(), _free_port(), 1 + int(call("world_size", None)), rank=0)
    return WeightTransferTrainerFactory.trainer_init(info, client=_Client(call, http=http), source=Source())


def _address() -> str:
    """Return this machine's address, as other machines see it."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("", 0))
        return int(s.getsockname()[1])
