"""A server that speaks vLLM's routes as recorded from a real one (recorded.json), with a real model behind it, and misbehaves on demand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from agentgym.renderer import Renderer
from agentgym.trainers.model import end_ids, load_model, save_model

SIZE: dict[str, Any] = {"layers": 1, "hidden": 32, "heads": 1, "kv_heads": 1, "head_dim": 32, "ffn": 32, "vocab": 300, "max_positions": 256}


class Stub(ThreadingHTTPServer):
    """One engine. `gone` routes answer 404; `deaf`: pushes are answered and ignored; `stale_head`: the tied head keeps its old weights."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder
        self.lock = threading.Lock()
        self.paused = threading.Event()
        self.seen: list[tuple[str, Any]] = []
        self.gone: set[str] = set()
        self.deaf = self.stale_head = False
        self.delay = 0.0
        self.aborted = self.disconnected = 0
        self.open: set[socket.socket] = set()
        self.restart()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def restart(self) -> None:
        """Be as a server that was started anew: the folder's weights, nobody's label."""
        with self.lock:
            self.model, _ = load_model(str(self.folder))
            self.label, self.head = "default", None
            self.paused.clear()

    def stop(self) -> None:
        """Be gone, connections and all; a second time does nothing."""
        self.shutdown()
        self.server_close()
        for s in list(self.open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    @torch.no_grad()
    def logits(self, ids: list[int]) -> torch.Tensor:
        with self.lock:
            hidden = self.model.model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            return hidden @ (self.model.lm_head.weight if self.head is None else self.head).T

    def push(self, path: str) -> None:
        from safetensors.torch import load_file

        weights = load_file(path)
        if self.deaf:
            return
        with self.lock:
            if self.stale_head:
                self.head = self.model.lm_head.weight.detach().clone()
            self.model.load_state_dict(weights, strict=False)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        model = {"id": "MODEL", "object": "model", "root": "MODEL", "parent": None, "max_model_len": 256}
        answers = {"/v1/models": {"object": "list", "data": [model]}, "/health": {}, "/get_world_size": {"world_size": 1}}
        self.answer(200, answers[path]) if path in answers and path not in self.server.gone else self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        s, path = self.server, urlsplit(self.path).path
        n = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(n)) if n else None
        s.seen.append((path, body))
        if path in s.gone:
            return self.answer(404, {"detail": "Not Found"})
        if path == "/inference/v1/generate":
            return self.generate(body)
        if path == "/pause":
            s.paused.set()
            return self.answer(200, {"status": "paused"})
        if path == "/resume":
            s.paused.clear()
            return self.answer(200, {"status": "resumed"})
        if path == "/reset_prefix_cache":
            return self.answer(200, {"success": True})
        if path == "/update_weight_version":
            s.label = body["new_version"]
            return self.answer(200, {"success": True, "new_version": s.label})
        if path == "/collective_rpc":
            try:
                s.push(*body["args"])
            except OSError as e:
                return self.answer(500, {"error": {"message": f"Call to collective_rpc method failed: Worker failed with error {e}", "code": 500}})
            return self.answer(200, {"results": ["1"]})
        return self.answer(404, {"detail": "Not Found"})

    def generate(self, body: Any) -> None:
        s, how = self.server, body["sampling_params"]
        prompt, ids = body["token_ids"], list(body["token_ids"])
        scores = None
        if "prompt_logprobs" in how:
            logp = s.logits(prompt).log_softmax(-1)
            scores = [None, *({str(t): {"logprob": float(logp[i, t]), "rank": 1, "decoded_token": "?"}} for i, t in enumerate(prompt[1:]))]
        g = torch.Generator().manual_seed(how.get("seed", 0))
        content, spans, finish = [], list[dict[str, Any]](), "length"
        while len(ids) - len(prompt) < how["max_tokens"]:
            if s.paused.is_set() and scores is None:
                finish, s.aborted = "abort", s.aborted + 1
                break
            if self.hung_up():
                s.disconnected += 1
                self.close_connection = True
                return
            time.sleep(s.delay)
            if s.paused.is_set() and scores is None:
                continue
            logp = (s.logits(ids)[-1] / (how.get("temperature", 1.0) or 1.0)).log_softmax(-1)
            token = int(torch.multinomial(logp.exp(), 1, generator=g))
            if not spans or spans[-1]["version"] != s.label:
                spans.append({"version": s.label, "start": len(content), "end": 0})
            ids.append(token)
            content.append({"token_id": token, "logprob": float(logp[token]), "rank": 1, "top_logprobs": []})
            spans[-1]["end"] = len(content)
            if token in how.get("stop_token_ids", ()):
                finish = "stop"
                break
        choice = {"index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": ids[len(prompt) :], "weight_versions": spans}
        logprobs = {"content": content} if "logprobs" in how else None
        self.answer(200, {"request_id": "r", "model": "MODEL", "prompt_logprobs": scores, "choices": [{**choice, "logprobs": logprobs}]})

    def hung_up(self) -> bool:
        """Return whether the client has closed the connection: the real server aborts the request then."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            return False

    def answer(self, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class Parts:
    """A small model, its renderer, and its folder."""

    def __init__(self, folder: Path) -> None:
        self.model, tokenizer = load_model("tiny", corpus=["go north", "take the lamp"], **SIZE)
        self.folder = save_model(self.model, tokenizer, folder)
        self.renderer = Renderer(tokenizer, stop_ids=end_ids(self.model))
        self.prompt = list(range(20, 30))

    @torch.no_grad()
    def shake(self, seed: int, size: float = 0.1) -> None:
        g = torch.Generator().manual_seed(seed)
        for p in self.model.parameters():
            p.add_(torch.randn(p.shape, generator=g) * size)

    @torch.no_grad()
    def logprobs(self, prompt: list[int], tokens: list[int]) -> list[float]:
        logp = self.model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return logp.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path / "model")


@pytest.fixture
def stub(parts: Parts) -> Iterator[Callable[..., Stub]]:
    found: list[Stub] = []

    def start(folder: Path | None = None, port: int = 0) -> Stub:
        found.append(Stub(folder or parts.folder, port))
        return found[-1]

    yield start
    for s in found:
        s.stop()
