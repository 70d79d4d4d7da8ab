"""The parts around vLLM that need no engine: the probe, engine arguments, exported weights, the mismatch, and the servers' supervisor."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agentgym.errors import ConfigError, PolicyError
from agentgym.trainers.batch import Batch
from agentgym.trainers.diagnose import disagreement
from agentgym.trainers.engine import probe, serve, weights
from agentgym.trainers.engine.settings import EXTENSION, Settings, environment, lora_rank
from agentgym.trainers.engine.transfer import check

# -- the probe ------------------------------------------------------------------------------------------------------------------------


def test_the_probe_compares_by_hand() -> None:
    found = probe.compare([-1.0, -2.0], [-1.25, -2.0], tolerance=0.3, who="it")
    assert (found.mean, found.largest) == (0.125, 0.25)
    with pytest.raises(PolicyError, match=r"it and the trainer disagree about a probe of 3 tokens.*up to 0.25 .mean 0.125., more than .* 0.2 "):
        probe.compare([-1.0, -2.0], [-1.25, -2.0], tolerance=0.2, who="it")
    with pytest.raises(PolicyError, match="differ by up to nan"):
        probe.compare([-1.0], [math.nan], tolerance=0.2, who="it")


def test_an_engine_that_stood_still_is_caught_however_small_the_step_was() -> None:
    before = ([-1.0, -2.0], [-1.0, -2.0])
    with pytest.raises(PolicyError, match=r"exactly as before, while the trainer's log-probabilities moved by up to 0.0002"):
        probe.compare([-1.0002, -2.0], before[1], tolerance=1e-3, who="it", before=before)
    probe.compare([-1.00001, -2.0], before[1], tolerance=1e-3, who="it", before=before)  # a step that half precision would round away
    probe.compare([-1.0002, -2.0], [-1.0002, -2.0], tolerance=1e-3, who="it", before=before)
    probe.compare([-1.0, -2.0], before[1], tolerance=1e-3, who="it", before=before)  # nobody moved


def test_the_probe_is_scored_at_temperature_one_and_leaves_the_model_as_it_was(parts: Any) -> None:
    ids = probe.tokens(len(parts.renderer.tokenizer))
    assert ids == probe.tokens(len(parts.renderer.tokenizer)) and len(ids) == 64 and max(ids) < len(parts.renderer.tokenizer)
    parts.model.train()
    assert probe.score(parts.model, ids) == pytest.approx(parts.logprobs(ids[:1], ids[1:]), abs=1e-6)
    assert parts.model.training


# -- weights, arguments, environment ----------------------------------------------------------------------------------------------------


def test_exported_weights_are_the_parameters_under_their_names(parts: Any, tmp_path: Path) -> None:
    path = weights.write(parts.model, tmp_path / "w.safetensors", torch.bfloat16)
    found, own = load_file(path), dict(parts.model.named_parameters())
    assert set(found) == set(own) and "lm_head.weight" not in found  # tied: once, as the embedding
    assert all(torch.equal(t, own[n].to(torch.bfloat16)) for n, t in found.items())
    assert list(tmp_path.glob("*.tmp")) == []


def test_exported_weights_of_a_model_with_adapters_are_the_base_models(parts: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from agentgym.trainers.model import add_lora

    plain = {n: t.clone() for n, t in parts.model.named_parameters()}
    model = add_lora(parts.model, r=4)
    assert weights.has_adapters(model) and not weights.has_adapters(parts.model)
    found = load_file(weights.write(model, tmp_path / "w.safetensors"))
    assert set(found) == set(plain) and all(torch.equal(found[n], plain[n]) for n in plain)
    folder = weights.write_adapters(model, tmp_path / "adapters")
    assert (folder / "adapter_config.json").is_file() and all(".lora_" in n for n in load_file(folder / "adapter_model.safetensors"))


def test_push_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights.push_folder(str(tmp_path / "deep" / "er"))
    assert folder.parent == tmp_path / "deep" / "er" and folder.is_dir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive, other = (tmp_path / f"agentgym-push-{x}" for x in (f"{ended.pid}-x", f"{os.getpid()}-x", "mine-x"))
    for f in (dead, alive, other):
        f.mkdir()
    monkeypatch.setattr(weights, "_SHARED", tmp_path)
    weights.push_folder("")
    assert not dead.exists() and alive.exists() and other.exists()


def test_engine_arguments_and_flags() -> None:
    s = Settings("M", dtype="float32", max_context=512, kv_gb=0.5, lora_rank=9, dummy=True, extra={"seed": 3, "async_scheduling": False})
    args = s.args(cpu=True)
    assert args["logprobs_mode"] == "processed_logprobs" and args["worker_extension_cls"] == EXTENSION and args["enable_prefix_caching"] is True
    assert (args["kv_cache_memory_bytes"], args["max_lora_rank"], args["load_format"], args["max_model_len"]) == (2**29, 16, "dummy", 512)
    flags = " ".join(s.flags(cpu=True))
    assert "--model M --dtype float32" in flags and "--enable-prefix-caching" in flags and "--no-async-scheduling" in flags and "--seed 3" in flags
    gpu = Settings("M", push="nccl")
    assert gpu.args(cpu=False)["weight_transfer_config"] == {"backend": "nccl"} and "kv_cache_memory_bytes" not in gpu.args(cpu=False)
    assert '--weight-transfer-config {"backend": "nccl"}' in " ".join(gpu.flags(cpu=False))
    with pytest.raises(ConfigError, match="push=nccl moves weights between GPUs"):
        gpu.args(cpu=True)
    with pytest.raises(ConfigError, match="'generation_config' is set by agentgym"):
        Settings("M", extra={"generation_config": "auto"})
    with pytest.raises(ConfigError, match="tensor_parallel at least 1"):
        Settings("M", tensor_parallel=0)
    with pytest.raises(ConfigError, match=r"model.lora.r=999 is more than vLLM serves"):
        lora_rank(999)
    assert [lora_rank(r) for r in (1, 8, 9, 64)] == [8, 8, 16, 64]


def test_the_engines_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = environment(cpu=True, server=True, threads=4)
    assert found["VLLM_SERVER_DEV_MODE"] == "1" and found["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert "VLLM_LOGGING_LEVEL" not in found and "OMP_NUM_THREADS" not in found  # what the user has set stays
    assert "VLLM_SERVER_DEV_MODE" not in environment(cpu=False, server=False, threads=4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pushing_between_gpus_needs_some() -> None:
    check("path")
    for push in ("nccl", "ipc"):
        with pytest.raises(ConfigError, match=f"policy.push={push} moves weights between GPUs, and this PyTorch sees none"):
            check(push)  # type: ignore[arg-type]


# -- the mismatch -----------------------------------------------------------------------------------------------------------------------


def test_disagreement_by_hand(golden: Batch) -> None:
    """Written tokens of the present version (3) differ by ln 2 on one and −ln 2 on another; the rest agree."""
    assert disagreement(golden, 3) == {}, "nobody asked for logp_train"
    d = torch.zeros(golden.n_tokens)
    written = golden.sampled.nonzero()[:, 0]
    d[written[0]], d[written[1]] = math.log(2), -math.log(2)
    d[~golden.sampled] = 9.0  # must not count
    golden.streams["logp_train"] = golden.logp_old + d
    n = len(written)
    found = disagreement(golden, 3)
    assert found["mismatch/mean"] == pytest.approx(2 * math.log(2) / n, rel=1e-5) and found["mismatch/max"] == pytest.approx(math.log(2), rel=1e-5)
    # exp(d) − 1 − d is 1 − ln 2 and ln 2 − 1/2.
    assert found["mismatch/k3"] == pytest.approx(0.5 / n, rel=1e-5) and found["mismatch/tokens"] == n
    assert disagreement(golden, 4) == {}, "older weights differ for another reason"


# -- agentgym serve vllm ------------------------------------------------------------------------------------------------------------------

STANDIN = """
    import os, sys, threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    port = int(sys.argv[sys.argv.index("--port") + 1])
    with open(os.environ["STARTS"], "a") as f:
        f.write(f"{port} {os.getpid()} {os.environ['VLLM_SERVER_DEV_MODE']} {' '.join(sys.argv[1:])}\\n")
    if "broken" in sys.argv[sys.argv.index("--model") + 1]:
        sys.exit(3)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args): ...
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a maker of (servers, starts): real processes that answer /health and do nothing else."""
    script, starts = tmp_path / "standin.py", tmp_path / "starts"
    script.write_text(textwrap.dedent(STANDIN), "utf-8")
    starts.touch()
    monkeypatch.setenv("STARTS", str(starts))

    def make(model: str = "M", n: int = 2) -> tuple[list[serve.Server], Callable[[], list[list[str]]]]:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        found = serve.servers(Settings(model), host="127.0.0.1", port=port, n=n, cpu=True, threads=1, launcher=(sys.executable, str(script)))
        return found, lambda: [line.split(maxsplit=3) for line in starts.read_text("utf-8").splitlines()]

    return make


def test_servers_are_started_watched_started_anew_and_ended(launch: Callable[..., Any]) -> None:
    fleet, starts = launch()
    said: list[str] = []

    def script() -> None:
        def wait(text: str, times: int) -> None:
            until = time.monotonic() + 20
            while sum(text in line for line in said) < times and time.monotonic() < until:
                time.sleep(0.02)

        wait("answers after", 2)
        os.kill(int(starts()[0][1]), signal.SIGKILL)
        wait("answers after", 3)
        os.kill(os.getpid(), signal.SIGTERM)  # what ends the command

    thread = threading.Thread(target=script)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        serve.run(fleet, say=said.append, poll=0.02)
    thread.join()
    rows = starts()
    assert len(rows) == 3 and {r[0] for r in rows} == {str(s.port) for s in fleet} and all(r[2] == "1" for r in rows)
    assert all("--enable-scale-out" in r[3] and "--worker-extension-cls" in r[3] and "--logprobs-mode processed_logprobs" in r[3] for r in rows)
    assert any("ended (exit code -9); another one takes its place" in line for line in said)
    assert all(s.process is not None and s.process.poll() is not None for s in fleet)
    with pytest.raises(ProcessLookupError):
        os.kill(int(rows[-1][1]), 0)


def test_a_server_that_cannot_start_ends_it_all(launch: Callable[..., Any]) -> None:
    fleet, starts = launch("broken", n=1)
    with pytest.raises(PolicyError, match=r"ended 3 times in a row .exit code 3.; its own words are above"):
        serve.run(fleet, say=lambda text: None, poll=0.02)
    assert len(starts()) == 3


def test_what_cannot_be_served(launch: Callable[..., Any]) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        with pytest.raises(ConfigError, match="choose another one with --port"):
            serve.servers(Settings("M"), host="127.0.0.1", port=s.getsockname()[1], n=1, cpu=True, threads=1)
    with pytest.raises(ConfigError, match="at least one server"):
        launch(n=0)
    with pytest.raises(ConfigError, match=r"2 servers with 4 GPU.s. each need 8 GPUs, there are 4"):
        serve.servers(Settings("M", tensor_parallel=4), host="127.0.0.1", port=9000, n=2, cpu=False, threads=1, gpus=["0", "1", "2", "3"])


def test_each_server_gets_its_gpus() -> None:
    made = serve.servers(Settings("M", tensor_parallel=2), host="127.0.0.1", port=49200, n=2, cpu=False, threads=1, gpus=["0", "1", "5", "7"])
    assert [s.env["CUDA_VISIBLE_DEVICES"] for s in made] == ["0,1", "5,7"] and made[1].url == "http://127.0.0.1:49201"


def test_float32_is_not_halved(parts: Any) -> None:
    assert serve.saved_dtype(str(parts.folder)) == "float32" and serve.saved_dtype("somebody/model") == "auto"


def test_serve_vllm_says_what_is_missing(command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "vllm" else real(name, *a))
    code, _, err = command("serve", "vllm", "no-such-model")
    assert code == 1 and "needs the package vllm in this environment" in err
    code, _, err = command("serve", "vllm", "m", "--push", "pigeon")
    assert code == 1 and "--push is path, nccl or ipc; got 'pigeon'" in err
