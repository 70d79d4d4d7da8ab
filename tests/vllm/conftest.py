"""The stage with the real engine: skipped where vLLM cannot be imported. Run it with the interpreter of an environment that has it (.ci/vllm)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.renderer import Renderer

# vLLM's attention on a CPU needs heads of 32 channels.
TINY: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 128, "vocab": 400, "max_positions": 512}
CORPUS = ["go north take lamp look at the wall", "open the door with the key"] * 3


class Parts:
    """A small model with spread-out probabilities, its renderer, and its folder."""

    def __init__(self, folder: Path, *, lora: bool = False) -> None:
        from agentgym.trainers.model import add_lora, end_ids, load_model, save_model

        self.model, tokenizer = load_model("tiny", corpus=CORPUS, seed=1, **TINY)
        self.shake(0.15)
        self.folder = save_model(self.model, tokenizer, folder)
        if lora:
            self.model = add_lora(self.model, r=4)
        self.renderer = Renderer(tokenizer, stop_ids=end_ids(self.model))

    @torch.no_grad()
    def shake(self, size: float, seed: int = 0) -> None:
        """Change every trained weight."""
        g = torch.Generator().manual_seed(seed)
        for p in self.model.parameters():
            if p.requires_grad:
                p.add_((torch.randn(p.shape, generator=g) * size).to(p.device))

    def prompt(self, n: int = 24, seed: int = 0) -> list[int]:
        """Return the first n ids of some text in which the seed orders the words."""
        words = sorted({w for line in CORPUS for w in line.split()})
        order = torch.randperm(len(words), generator=torch.Generator().manual_seed(seed)).tolist()
        ids = self.renderer.tokenizer.encode(" ".join(words[i] for i in order) + " ", add_special_tokens=False)
        return (ids * n)[:n]

    @torch.no_grad()
    def logprobs(self, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> list[float]:
        """Score `tokens` after `prompt` with transformers itself, no code of ours in between."""
        logits = self.model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float() / temperature
        return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path / "model")


@pytest.fixture(scope="session")
def make_parts() -> Callable[..., Parts]:
    return Parts


class Served:
    """`agentgym serve vllm` in a process of its own."""

    def __init__(self, folder: Path, log: Path, *args: str) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}", log
        command = [sys.executable, "-P", "-m", "agentgym.cli", "serve", "vllm", str(folder), "--port", str(port), "--kv-gb", "0.25", *args]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def wait_for(self, text: str, seconds: float = 240.0) -> None:
        until = time.monotonic() + seconds
        while text not in self.log.read_text("utf-8", "replace"):
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text("utf-8", "replace")[-3000:]
            time.sleep(0.2)

    def server_pid(self) -> int:
        """Return the process id of the vLLM server itself."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=True).stdout.split()
        assert len(found) == 1, found
        return int(found[0])

    def kill_server(self) -> None:
        os.killpg(self.server_pid(), signal.SIGKILL)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    found: list[Served] = []

    def start(folder: Path, *args: str) -> Served:
        found.append(Served(folder, tmp_path / f"serve-{len(found)}.log", *args))
        return found[-1]

    yield start
    for s in found:
        if s.process.poll() is None:
            s.end()
