"""Parts of the sandboxes one by one: choice of a backend, pool, images, output, the copied Python, control groups."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe.sandbox import Backend, Limits, Pool, Sandbox, SandboxMissing, backend, cgroups, seccomp
from agentgym.envs.swe.sandbox.output import Output
from agentgym.envs.swe.sandbox.python import python_tree
from agentgym.envs.swe.sandbox.shell import Shell
from agentgym.errors import ConfigError, EnvError


class TestBackend:
    def test_one_that_is_there_is_found(self, machine: Any) -> None:
        from agentgym.envs.swe.sandbox.bubblewrap import Bubblewrap
        from agentgym.envs.swe.sandbox.docker import Docker

        there = [kind.name for kind in (Docker(), Bubblewrap()) if kind.available() is None]
        if not there:
            pytest.skip("neither Docker nor bubblewrap can run here")
        assert backend().name == there[0] and [backend(name).name for name in there] == there  # type: ignore[arg-type]

    def test_neither_is_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SandboxMissing) as error:
            backend()
        for word in ("docker: ", "docker.io", str(tmp_path), "bubblewrap: ", "apt-get install -y --no-install-recommends bubblewrap"):
            assert word in str(error.value)
        assert isinstance(error.value, EnvError)
        for name in ("docker", "bubblewrap"):
            with pytest.raises(SandboxMissing) as error:
                backend(name)  # type: ignore[arg-type]
            assert name in str(error.value)

    def test_bubblewrap_where_no_engine_answers(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: Any) -> None:
        machine.usable("bubblewrap")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        assert backend().name == "bubblewrap"

    def test_an_unknown_one(self) -> None:
        with pytest.raises(ConfigError, match="Did you mean 'docker'"):
            backend("dokcer")  # type: ignore[arg-type]

    def test_none_warns_each_time(self) -> None:
        for _ in range(2):
            with pytest.warns(UserWarning, match="run as you, on this machine"):
                assert backend("none").available() is None

    def test_without_the_filter_there_is_no_sandbox(self, monkeypatch: pytest.MonkeyPatch, machine: Any) -> None:
        kind = machine.usable("bubblewrap")
        from agentgym.envs.swe.sandbox.bwrap import _lacking

        monkeypatch.setitem(sys.modules, "pyseccomp", None)
        _lacking.cache_clear()
        try:
            assert "pip install pyseccomp" in str(kind.available())
        finally:
            _lacking.cache_clear()

    def test_every_limit_is_described(self, engine: Backend) -> None:
        told = engine.describe()
        assert {"memory", "pids", "cpus", "disk", "network", "user", "rights", "system calls"} <= set(told) and all(told.values())


class Slow:
    """A backend whose sandboxes are objects that count."""

    name = "slow"

    def __init__(self, fails: int = 0) -> None:
        self.made: list[Any] = []
        self.fails = fails

    def available(self) -> str | None:
        return None

    def describe(self) -> dict[str, str]:
        return {}

    def open(self, tree: Path | None, *, image: str | None = None, limits: Limits = Limits(), env: Mapping[str, str] = {}) -> Sandbox:
        time.sleep(0.05)
        if self.fails:
            self.fails -= 1
            raise EnvError("on purpose")

        class Box:
            closed = False

            def close(self) -> None:
                self.closed = True

        self.made.append(Box())
        box: Sandbox = self.made[-1]
        return box


class TestPool:
    def test_what_is_warm_is_given_at_once(self, engine: Backend, tree: Path) -> None:
        with Pool(engine, 2, tree, limits=Limits(memory_mb=256, disk_mb=32)) as pool:
            first = pool.open()
            deadline = time.monotonic() + 60
            while len(pool._ready) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            start = time.monotonic()
            second, third = pool.open(), pool.open()
            assert time.monotonic() - start < 0.05
            first.run("echo x > x")
            assert second.run("cat README.md; ls x").output.startswith("# wörld\nls:") and third.run("echo on").output == "on\n"
            for box in (first, second, third):
                pool.close(box)

    def test_many_threads(self) -> None:
        kind = Slow()
        got: list[Sandbox] = []
        with Pool(kind, 3, Path()) as pool:
            threads = [threading.Thread(target=lambda: got.extend(pool.open() for _ in range(5))) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert len({id(box) for box in got}) == 30
            assert not any(box.closed for box in kind.made)
            pool.close(got[0])
            assert sum(box.closed for box in kind.made) == 1
        time.sleep(0.2)
        assert len(kind.made) <= 34 and sum(box.closed for box in kind.made) == len(kind.made) - 29

    def test_a_failure_is_told_and_the_pool_goes_on(self) -> None:
        with Pool(Slow(fails=2), 1, Path()) as pool:
            for _ in range(2):
                with pytest.raises(EnvError, match="on purpose"):
                    pool.open()
            assert pool.open()

    def test_its_end(self) -> None:
        pool = Pool(Slow(), 1, Path())
        pool.close()
        pool.close()
        with pytest.raises(EnvError, match="closed"):
            pool.open()
        with pytest.raises(EnvError, match="at least 1"):
            Pool(Slow(), 0, Path())
        with Pool(Slow(fails=10**9), 1, Path()) as pool, pytest.raises(EnvError):
            pool.open(timeout=0.01)


class TestOutput:
    @pytest.mark.parametrize("seed", range(20))
    def test_as_if_all_were_kept(self, seed: int) -> None:
        rng = random.Random(seed)
        alphabet = ["a", "\n", "é", "漢", "🙂", "\x00"]
        text = "".join(rng.choices(alphabet, k=rng.randrange(0, 3000)))
        keep = rng.randrange(2, 400, 2)
        output, data = Output(keep), text.encode()
        while data:
            size = rng.randrange(1, 700)
            output.add(data[:size])
            data = data[size:]
        got, dropped = output.text()
        if len(text) <= keep:
            assert (got, dropped) == (text, 0)
        else:
            half = keep // 2
            lost = len(text[half:-half].encode())
            assert got == f"{text[:half]}\n[… {lost:,} bytes left out here …]\n{text[-half:]}" and dropped == lost

    def test_bytes_that_are_no_text(self) -> None:
        output = Output(10)
        output.add(b"\xff" * 100)
        text, dropped = output.text()
        assert text.count("\ufffd") == 10 and dropped == 90


class TestPython:
    def test_it_is_copied_once(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        first = python_tree()
        capsys.readouterr()
        assert python_tree() == first and capsys.readouterr().err == ""
        assert not [name for name in os.listdir(first.folder.parent.parent) if name.startswith(".")]

    def test_another_package(self) -> None:
        more = python_tree(("pytest", "hypothesis"))
        assert more.tag != python_tree().tag
        assert any((more.folder / "lib").rglob("hypothesis/__init__.py")) and not any((python_tree().folder / "lib").rglob("hypothesis/__init__.py"))
        with pytest.raises(EnvError, match="pip install no-such-package-anywhere"):
            python_tree(("no-such-package-anywhere",))

    def test_two_processes_copy_it_once(self, tmp_path: Path) -> None:
        code = "from agentgym.envs.swe.sandbox.python import python_tree; print(python_tree().folder)"
        environment = {**os.environ, "AGENTGYM_CACHE": str(tmp_path)}
        pair = [
            subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = [process.communicate(timeout=120) for process in pair]
        assert said[0][0] == said[1][0] and Path(said[0][0].strip()).is_dir()
        assert sorted(err.count("copying Python") for _, err in said) == [0, 1]


class TestGroups:
    def test_values(self) -> None:
        limits = Limits(memory_mb=256, pids=30, cpus=0.5, disk_mb=16)
        assert cgroups._values("pids", limits, v2=True) == [("pids.max", "30")]
        assert cgroups._values("memory", limits, v2=True) == [("memory.max", str(256 << 20)), ("memory.swap.max", "0")]
        assert cgroups._values("memory", limits, v2=False)[0] == ("memory.limit_in_bytes", str(256 << 20))
        assert cgroups._values("cpu", limits, v2=True) == [("cpu.max", "50000 100000")]
        assert cgroups._values("cpu", limits, v2=False) == [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")]

    def test_a_process_in_one_is_ended_with_it(self) -> None:
        if "pids" not in cgroups.places():
            pytest.skip("no control group can be made here")
        group = cgroups.Group(f"test-{os.getpid()}", Limits())
        process = subprocess.Popen(["sleep", "100"])
        for file in group.join:
            Path(file).write_text(str(process.pid), "utf-8")
        folders = group.folders
        assert all(Path(folder).is_dir() for folder in folders) and len(folders) >= 1
        waiter = threading.Thread(target=process.wait)
        waiter.start()
        group.remove()
        waiter.join(10)
        assert process.returncode == -9 and not any(Path(folder).exists() for folder in folders)

    def test_the_filter(self) -> None:
        if lacking := seccomp.missing():
            pytest.skip(lacking)
        plain, pinned = seccomp.program(), seccomp.program(True)
        assert len(plain) % 8 == 0 and len(plain) > 400 and len(pinned) > len(plain)


@pytest.fixture(scope="module")
def api(machine: Any) -> Iterator[Any]:
    machine.usable("docker")
    from agentgym.envs.swe.sandbox.engine import client

    with contextlib.closing(client()) as api:
        yield api


@pytest.fixture(scope="module")
def pinned(api: Any) -> Iterator[str]:
    """An image as a user may have one: its own work tree that belongs to root, an entry point, a user, a volume, a variable."""
    from agentgym.envs.swe.sandbox.image import base_image

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data, mode in (
            ("testbed/pkg/a.py", b"A = 1\n", 0o600),
            ("testbed/run.sh", b"#!/bin/sh\necho ran\n", 0o755),
            ("testbed/Dockerfile", b"", 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("testbed/link")
        link.type, link.linkname = tarfile.SYMTYPE, "pkg/a.py"
        tar.addfile(link)
    base = base_image(api)
    made = api.create_container(base, ["true"])["Id"]
    name = "agentgym-test:pinned"
    try:
        api.put_archive(made, "/", buffer.getvalue())
        changes = ['ENTRYPOINT ["/bin/false"]', "USER nobody", "VOLUME /data", "ENV OWN=image", "WORKDIR /tmp", "HEALTHCHECK CMD false"]
        api.commit(made, "agentgym-test", "pinned", changes="\n".join(changes))
    finally:
        api.remove_container(made, force=True, v=True)
    yield name
    api.remove_image(name, force=True)


class TestDocker:
    def test_a_users_image_is_taken_as_it_is(self, api: Any, pinned: str, machine: Any) -> None:
        kind = machine.usable("docker")
        volumes = len(api.volumes()["Volumes"] or [])
        with kind.open(None, image=pinned, limits=Limits(memory_mb=256, disk_mb=32)) as box:
            done = box.run("pwd; id -u; echo $OWN; cat pkg/a.py link; ./run.sh; echo x >> pkg/a.py; echo y > new; stat -c '%u %a' pkg/a.py")
            assert done.output == "/testbed\n1000\nimage\nA = 1\nA = 1\nran\n1000 600\n"
            box.reset()
            assert box.run("cat pkg/a.py; ls").output == "A = 1\nDockerfile\nlink\npkg\nrun.sh\n"
            box.run("rm -rf run.sh; git init -q .")
            box.snapshot()
            box.run("rm -rf pkg .git")
            box.reset()
            assert box.run("ls -A").output == ".git\nDockerfile\nlink\npkg\n"
        assert len(api.volumes()["Volumes"] or []) == volumes
        with kind.open(None, image=pinned) as box:
            assert box.read("pkg/a.py") == b"A = 1\n"

    def test_an_image_that_cannot_be_had(self, machine: Any) -> None:
        kind = machine.usable("docker")
        start = time.monotonic()
        with pytest.raises(EnvError, match="cannot pull the image agentgym-test:none"):
            kind.open(None, image="agentgym-test:none")
        assert time.monotonic() - start < 60 and machine.containers(os.getpid()) == []

    def test_an_image_without_a_work_tree(self, api: Any, machine: Any) -> None:
        kind = machine.usable("docker")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("file"))
        api.import_image_from_data(buffer.getvalue(), repository="agentgym-test", tag="empty")
        try:
            with pytest.raises(EnvError, match="cannot copy /testbed out of the image agentgym-test:empty"):
                kind.open(None, image="agentgym-test:empty")
        finally:
            api.remove_image("agentgym-test:empty", force=True)
        assert machine.left_of(os.getpid()) == []

    def test_tree_and_image(self, tree: Path, machine: Any) -> None:
        kind = machine.usable("docker")
        with pytest.raises(ConfigError, match="either a tree or an image"):
            kind.open(tree, image="some:image")
        with pytest.raises(ConfigError, match="either a tree or an image"):
            kind.open(None)

    def test_bubblewrap_has_no_images(self, machine: Any) -> None:
        with pytest.raises(ConfigError, match="no images"):
            machine.usable("bubblewrap").open(None, image="some:image")

    def test_a_container_that_somebody_removed(self, api: Any, tree: Path, machine: Any) -> None:
        kind = machine.usable("docker")
        box = kind.open(tree)
        for name in machine.containers(os.getpid()):
            api.remove_container(name, force=True)
        for use in (lambda: box.run("true"), lambda: box.shell("true"), lambda: box.read("README.md"), box.reset):
            with pytest.raises(EnvError):
                use()
        box.close()
        assert machine.left_of(os.getpid()) == []

    def test_one_that_dies_while_a_command_runs(self, api: Any, tree: Path, machine: Any) -> None:
        kind = machine.usable("docker")
        with kind.open(tree) as box:
            name = machine.containers(os.getpid())[0]
            threading.Timer(0.5, lambda: api.remove_container(name, force=True)).start()
            start = time.monotonic()
            with pytest.raises(EnvError, match="has ended"):
                box.shell("sleep 100", timeout=100)
            assert time.monotonic() - start < 30

    def test_the_base_image_is_made_once(self, api: Any, capsys: pytest.CaptureFixture[str]) -> None:
        from agentgym.envs.swe.sandbox.image import base_image

        name = base_image(api)
        capsys.readouterr()
        assert base_image(api) == name and capsys.readouterr().err == ""
        found = api.inspect_image(name)
        assert found["Config"]["Labels"]["agentgym.image"] == name.partition(":")[2] and found["Size"] < 400e6

    def test_limits_in_the_container(self, api: Any, tree: Path, machine: Any) -> None:
        kind = machine.usable("docker")
        with kind.open(tree, limits=Limits(memory_mb=300, pids=50, cpus=0.5, disk_mb=32)):
            (name,) = machine.containers(os.getpid())
            host = api.inspect_container(name)["HostConfig"]
        assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
        assert 300 <= host["Memory"] >> 20 <= 302 and host["MemorySwap"] == host["Memory"] and host["NanoCpus"] == 5 * 10**8
        assert 50 <= host["PidsLimit"] < 64 and any("no-new-privileges" in option for option in host["SecurityOpt"])


class TestBubblewrapEnds:
    def test_one_whose_holder_was_killed(self, tree: Path, machine: Any) -> None:
        kind = machine.usable("bubblewrap")
        before = machine.left_of(os.getpid())
        box = kind.open(tree)
        os.kill(box._holder.pid, 9)

        def ended() -> bool:
            with contextlib.suppress(EnvError):
                box.run("true")
                return False
            return True

        assert machine.eventually(ended), "the kernel ends what the holder began, in a moment"
        for use in (lambda: box.run("true"), lambda: box.shell("true"), lambda: box.read("README.md"), box.reset):
            with pytest.raises(EnvError):
                use()
        box.close()
        assert machine.left_of(os.getpid()) == before

    def test_a_tree_with_files_of_several_users(self, tmp_path: Path, machine: Any) -> None:
        kind = machine.usable("bubblewrap")
        if os.getuid():
            pytest.skip("giving files away needs root")
        for name, user in (("one", 0), ("two", 4321), ("three", 77)):
            (tmp_path / name).write_text(name, "utf-8")
            os.chown(tmp_path / name, user, user)
        with kind.open(tmp_path) as box:
            assert box.run("for f in one two three; do echo x >> $f; done; cat one two three; find . ! -user 1000").output == "onex\ntwox\nthreex\n"
            box.reset()
            assert box.run("cat one two three").output == "onetwothree"
        assert (tmp_path / "two").read_text("utf-8") == "two"


class TestClean:
    """Which files of a Docker sandbox's work tree are restored by a reset."""

    @pytest.fixture
    def kept(self, tree: Path, machine: Any) -> Iterator[tuple[Any, list[str]]]:
        """A sandbox, and what its resets do: `part` or `whole`."""
        kind = machine.usable("docker")
        did: list[str] = []
        with kind.open(tree, limits=Limits(memory_mb=256, disk_mb=32)) as box, pytest.MonkeyPatch.context() as patch:
            for name in ("part", "archive"):
                real = getattr(type(box._clean), name)
                patch.setattr(type(box._clean), name, lambda *args, name=name, real=real: (did.append(name), real(*args))[1])
            yield box, did

    def test_only_what_was_touched_is_unpacked(self, kept: tuple[Any, list[str]]) -> None:
        box, did = kept
        box.reset()
        assert did == []
        box.run("echo x > pkg/core.py; touch -r README.md pkg/core.py; rm link")
        box.reset()
        assert did == ["part"] and box.run("cat pkg/core.py | head -n 1; cat link").output == "def double(x):\n# wörld\n"
        box.reset()
        assert did == ["part"]

    ACTS = [
        "sed -i s/2/3/ pkg/core.py; touch -d 1999-01-01 pkg/core.py",
        "cp -p pkg/core.py /tmp/c; printf 'def double(x):\\n    return 3 * x\\n' > pkg/core.py; touch -r /tmp/c pkg/core.py",
        "chmod 600 pkg/core.py; chmod 700 pkg; chmod 711 .",
        "mv pkg other; mkdir pkg; mv other/core.py pkg/core.py",
        "mv pkg other; ln -s other pkg",
        "rm -rf empty; touch empty; rm README.md; mkdir README.md; touch README.md/x",
        "ln pkg/core.py hard; rm pkg/core.py; mv hard pkg/core.py; echo x >> pkg/core.py",
        "ln -sf run.sh link; chmod 000 pkg; mkdir -p 'new\n\tline/x'; mkfifo pipe",
        "rm -rf ..?* .[!.]* *",
        "mv 'a b/ü.txt' x; mv README.md 'a b/ü.txt'; mv x README.md",
        "exec 3<>pkg/core.py; printf X >&3; python -c \"import mmap; m = mmap.mmap(open('run.sh', 'r+b').fileno(), 0); m[0:1] = b'X'\"",
    ]

    @pytest.mark.parametrize("snapshot", [False, True])
    def test_every_way_to_change_a_file(self, kept: tuple[Any, list[str]], snapshot: bool) -> None:
        box, did = kept
        show = "find . -printf '%y %m %P %l\\n' | sort; find . -type f | sort | xargs -d '\\n' md5sum"
        if snapshot:
            box.run("echo more > more; rm 'a b/ü.txt'; echo again > 'a b/ü.txt'; chmod 640 more")
            box.snapshot()
        before = box.run(show).output
        for act in self.ACTS:
            for _ in range(2):
                box.run(act)
                assert box.run(show).output != before, act
                box.reset()
                assert box.run(show).output == before, act
        assert set(did) == {"part"}

    def test_a_mess_is_unpacked_as_a_whole(self, kept: tuple[Any, list[str]]) -> None:
        box, did = kept
        box.run("for i in {1..6000}; do echo > n$i; done; rm -rf pkg")
        box.reset()
        assert did == ["archive"] and box.run("ls | wc -l; ls pkg").output == "6\n__init__.py\ncore.py\n"

    def test_without_a_list_all_is_unpacked(self, kept: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
        box, did = kept
        monkeypatch.setattr(box, "_list", lambda before="": None)
        box.run("rm -rf pkg")
        box.reset()
        box.run("rm -rf pkg")
        box.reset()
        assert did == ["archive", "archive"] and box.run("ls pkg").output == "__init__.py\ncore.py\n"

    def test_what_no_archive_can_hold(self, kept: tuple[Any, list[str]]) -> None:
        box, did = kept
        box.run("python -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"; mkdir .git; echo x > .git/y")
        box.snapshot()
        box.run("rm sock; rm -r .git")
        box.reset()
        assert did[-1] == "archive" and box.run("ls -A .git; ls sock 2>&1").output.startswith("y\nls:")
        box.run("rm -r .git")
        box.reset()
        assert did[-1] == "part" and box.run("cat .git/y").output == "x\n"

    def test_what_cannot_be_compared(self) -> None:
        from agentgym.envs.swe.sandbox.clean import entries

        for text in (b"", b"find: no such option", b"f 644\0x\0\0"):
            with pytest.raises(ValueError):
                entries(text)


def test_root_without_a_user_to_become(tree: Path, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bwrap runs as root only, its processes are root's outside, without rights; the pids control group limits them."""
    kind = machine.usable("bubblewrap")
    from agentgym.envs.swe.sandbox import bwrap

    if os.getuid():
        pytest.skip("this user is not root")
    monkeypatch.setattr(bwrap, "drops", lambda: False)
    with kind.open(tree, limits=Limits(memory_mb=256, disk_mb=32, pids=40)) as box:
        assert box.run("id -u; cat README.md; echo x >> README.md; grep CapEff /proc/self/status; touch /usr/x").output.startswith(
            "1000\n# wörld\nCapEff:\t0000000000000000\ntouch:"
        )
        box.reset()
        assert box.run("cat README.md").output == "# wörld\n"
    assert ("RLIMIT_NPROC" in kind.describe()["pids"]) is False


class TestScript:
    """`docker/engine`, which gives the tests an engine."""

    SCRIPT = str(Path(__file__).resolve().parents[3] / "docker" / "engine")

    def run(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        return subprocess.run(["sh", self.SCRIPT, *args], capture_output=True, text=True, env={**kept, **environment}, timeout=120)

    def test_its_use(self) -> None:
        for wrong in ((), ("begin",)):
            done = self.run(*wrong)
            assert done.returncode == 2 and "usage" in done.stderr

    def test_an_engine_that_answers_is_taken(self, machine: Any) -> None:
        machine.usable("docker")
        from agentgym.envs.swe.sandbox.engine import host

        assert self.run("start", DOCKER_HOST=host()).stdout == f"{host()}\n"

    def test_one_is_started_and_ended(self) -> None:
        if os.getuid() or not shutil.which("dockerd"):
            pytest.skip("dockerd is not installed, or this user is not root")
        folder = f"/tmp/agentgym-{os.getpid()}"
        nobody = "unix:///nowhere/docker.sock"
        try:
            done = self.run("start", folder, DOCKER_HOST=nobody)
            assert done.stdout == f"unix://{folder}/docker.sock\n", done.stderr
            assert self.run("start", folder, DOCKER_HOST=nobody).stdout == done.stdout
            pid = int(Path(folder, "docker.pid").read_text("utf-8"))
        finally:
            assert self.run("stop", folder).returncode == 0
        assert not os.path.exists(folder) and not os.path.exists(f"/proc/{pid}/cwd")
        assert self.run("stop", folder).returncode == 0


class Batches:
    """A channel that hands out batches of events that were written down."""

    ordered = False

    def __init__(self, *batches: list[tuple[str, bytes]]) -> None:
        self.batches = list(batches)

    def send(self, data: bytes, deadline: float) -> None: ...

    def poll(self, timeout: float) -> list[Any]:
        return self.batches.pop(0) if self.batches else [("end", b"")]

    def close(self) -> None: ...


def test_what_comes_with_the_last_word_is_not_lost() -> None:
    """An engine may pass on the word that the shell has gone before its output, in one block with it or later."""
    ready, gone, text = ("control", b"ready\n"), ("control", b"gone 3\n"), ("out", b"1\n2\n\x1ebye")
    for batches in (
        [[ready], [gone, text]],
        [[ready, gone], [text]],
        [[ready, ("out", b"1\n2\n\x1e")], [gone, ("out", b"bye")]],
        [[ready, text, gone]],
    ):
        ended = Shell(Batches(*batches), farewell=b"bye").execute("x", 5.0, 100)  # type: ignore[arg-type]
        assert (ended.how, ended.code, ended.text) == ("gone", 3, "1\n2\n"), batches
