"""A container whose end is certain, and the end of those whose owner is dead.

Its first processes are the engine's init and a bash of root's that has no right but to kill: the agent, user 1000, cannot end them, and so not the
container. That bash reads from a connection that the owner holds: when the owner ends, however that comes, the bash ends, and the engine removes the
container.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Mapping
from typing import IO, Any

from agentgym.errors import EnvError

from . import owner
from .engine import CALL_S, Stream, asking, client, is_podman
from .types import TREE, USER, Limits, SandboxMissing

LABEL = "agentgym.owner"
_GIVE = f"chown {USER}:{USER} {TREE}; chmod 755 {TREE}; chmod 1777 /tmp /var/tmp\n"
_AGENT = f"{USER}:{USER}"
_SPARE = 8  # processes that are not the agent's: init, the killer, and the engine's own while it starts one
_END_S = 15.0
_BLOCK = 1 << 18
# Ends all but process 1 and itself, and says how many are left: nothing in here forks, so it works when the limit of processes is reached.
_KILLER = r"""
exec 9<> <(:)
trap '' TERM INT HUP
while read -r what token; do
  left=0
  for ((i = 0; i < 1000; i++)); do
    [[ $what == kill ]] || break
    kill -9 -1 2>/dev/null
    left=0
    for p in /proc/[0-9]*; do [[ $p == /proc/1 || $p == /proc/$$ ]] || left=$((left + 1)); done
    ((left == 0)) && break
    read -rt 0.005 -u 9
  done
  echo "$token $left"
done
"""


class Container:
    """A running container whose end is certain."""

    def __init__(self, api: Any, image: str, limits: Limits, env: Mapping[str, str], spare_mb: int) -> None:
        self.api = api
        self._id = ""
        self._killer: Stream | None = None
        try:
            with asking(f"start a container of {image}"):
                podman = is_podman(api)
                self._id = api.create_container(
                    image,
                    ["-s"],
                    entrypoint=["/bin/bash"],
                    user="0:0",
                    working_dir="/",
                    environment=dict(env),
                    hostname="sandbox",
                    labels={LABEL: str(owner.me())},
                    healthcheck={"test": ["NONE"]},
                    stdin_open=True,
                    network_disabled=True,
                    host_config=_host_config(api, limits, spare_mb, podman),
                )["Id"]
                self._killer = Stream(api.attach_socket(self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}))
                api.start(self._id)
            self._killer.send(((_GIVE if podman else "") + _KILLER).encode(), time.monotonic() + CALL_S)
            self._ask("look")
        except BaseException:
            self.remove()
            raise

    def execute(self, argv: list[str], env: Mapping[str, str] = {}) -> tuple[Stream, str]:
        """Start a process of the agent's user in the work tree; return its streams and its number with the engine."""
        with asking("start a process in the container"):
            number = self.api.exec_create(self._id, argv, stdin=True, user=_AGENT, workdir=TREE, environment=dict(env))["Id"]
            return Stream(self.api.exec_start(number, socket=True)), number

    def feed(self, argv: list[str], first: bytes, data: IO[bytes], limit: float) -> tuple[int, bytes]:
        """Run a process with this stdin; return its exit status and what it wrote. Raises EnvError where it takes too long."""
        return self._finish(argv, first, data, None, limit)

    def drain(self, argv: list[str], into: IO[bytes], limit: float) -> tuple[int, bytes]:
        """Run a process and take its stdout into a file; return its exit status and its stderr."""
        return self._finish(argv, b"", None, into, limit)

    def _finish(self, argv: list[str], block: bytes, data: IO[bytes] | None, into: IO[bytes] | None, limit: float) -> tuple[int, bytes]:
        deadline = time.monotonic() + limit
        stream, number = self.execute(argv)
        said = b""
        try:
            block = block or (data.read(_BLOCK) if data else b"")
            if not block:
                stream.end_input()
            while (now := time.monotonic()) < deadline:
                for kind, part in stream.poll(0.0 if block else deadline - now):
                    if kind == "end":
                        return self._status(number, deadline), said
                    if into and kind == "out":
                        into.write(part)
                    else:
                        said = (said + part)[-4000:]
                if block:  # a little at a time: a process that has ended takes no more, and says so only to a reader
                    block = block[stream.send_some(block) :]
                    if not block and not (block := data.read(_BLOCK) if data else b""):
                        stream.end_input()
        finally:
            stream.close()
        raise EnvError(f"{argv[0]} in the container took longer than {limit:g} s")

    def _status(self, number: str, deadline: float) -> int:
        with asking("say how a process in the container ended"):
            while True:
                seen = self.api.exec_inspect(number)
                if not seen["Running"] and seen["ExitCode"] is not None:
                    return int(seen["ExitCode"])
                if time.monotonic() > deadline:
                    raise EnvError("a process in the container does not end")
                time.sleep(0.005)

    def end_processes(self) -> None:
        """End all that the agent runs. Raises EnvError where the container has ended."""
        if self._ask("kill"):
            raise EnvError("a process in the container cannot be killed (it waits for a device?); close the sandbox and open another one")

    def _ask(self, what: str) -> int:
        """Have the killer do something; return how many processes it left."""
        assert self._killer
        token, said, deadline = secrets.token_hex(8), b"", time.monotonic() + _END_S
        self._killer.send(f"{what} {token}\n".encode(), deadline)
        while time.monotonic() < deadline:
            for kind, data in self._killer.poll(deadline - time.monotonic()):
                if kind == "end":
                    words = said.decode("utf-8", "replace").strip()[-300:] or "without a word"
                    raise EnvError(f"the sandbox's container has ended ({words}); open another one")
                said = (said + data)[-4000:]
            if found := re.search(rf"{token} (\d+)\n".encode(), said):
                return int(found[1])
        raise EnvError(f"the sandbox's container does not answer within {_END_S:g} s; close the sandbox and open another one")

    def abort(self) -> None:
        """Begin to end it."""
        if self._killer:
            self._killer.abort()

    def remove(self) -> None:
        """Remove it, whatever it does."""
        if self._killer:
            self._killer.close()
        if self._id:
            remove_container(self.api, self._id)


def remove_container(api: Any, name: str) -> None:
    """Remove a container and wait until it is gone. Raises EnvError."""
    import docker

    deadline = time.monotonic() + CALL_S
    with asking("remove a container"):
        while True:
            try:
                api.remove_container(name, force=True, v=True)
                return
            except docker.errors.NotFound:
                return
            except docker.errors.APIError:  # Docker 409, Podman 500: it is being removed
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def reap_containers() -> int:
    """Remove the containers of dead owners; return how many."""
    try:
        api = client(10)
    except SandboxMissing:
        return 0
    found = 0
    with contextlib.closing(api), asking("list the containers"):
        for seen in api.containers(all=True, filters={"label": LABEL}):
            who = owner.Owner.parse(seen["Labels"][LABEL])
            if who and owner.dead(who):
                remove_container(api, seen["Id"])
                found += 1
    return found


def _host_config(api: Any, limits: Limits, spare_mb: int, podman: bool) -> Any:
    import docker

    memory = (limits.memory_mb + spare_mb) << 20
    disk = limits.disk_mb + spare_mb
    processes = 4096 + limits.pids  # of this user on the whole machine; what Podman itself asks for is more than it may have on some

    def tmpfs(megabytes: int, mode: str) -> str:
        if podman:  # knows no owner and no number of files; without the last word it copies what the image has there
            return f"size={megabytes}m,mode={mode},exec,nosuid,nodev,notmpcopyup"
        return f"size={megabytes}m,nr_inodes={2000 + 256 * megabytes},mode={mode},uid={USER},gid={USER},exec,nosuid,nodev"

    return api.create_host_config(
        network_mode="none",
        ipc_mode="private",
        read_only=True,
        cap_drop=["ALL"],
        cap_add=["KILL", *(["CHOWN"] if podman else [])],
        security_opt=["no-new-privileges"],
        init=True,
        auto_remove=True,
        mem_limit=memory,
        memswap_limit=memory,
        pids_limit=limits.pids + _SPARE,
        nano_cpus=int(limits.cpus * 1e9),
        shm_size=limits.shm_mb << 20,
        sysctls={"kernel.shmall": limits.shm_mb << 8, "kernel.shmmax": limits.shm_mb << 20},  # shared memory outlives the processes that made it
        tmpfs={
            TREE: tmpfs(disk, "755"),
            "/tmp": tmpfs(limits.tmp_mb, "1777"),
            "/var/tmp": tmpfs(1, "1777"),
        },
        ulimits=[
            *([docker.types.Ulimit(name="nproc", soft=processes, hard=processes)] if podman else []),
            docker.types.Ulimit(name="core", soft=0, hard=0),
            docker.types.Ulimit(name="nofile", soft=4096, hard=4096),
            docker.types.Ulimit(name="fsize", soft=(disk + 1) << 20, hard=(disk + 1) << 20),
        ],
    )
