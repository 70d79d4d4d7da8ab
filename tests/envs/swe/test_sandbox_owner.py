"""What is left of sandboxes when their owner ends, however it does: nothing."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.swe.sandbox import Backend, Limits, owner, reap
from agentgym.envs.swe.sandbox.owner import Owner

PROGRAM = """
import os, sys, time, signal, threading
from pathlib import Path
from agentgym.envs.swe.sandbox import backend, Limits
name, tree, number, how = sys.argv[1:]
boxes = [backend(name).open(Path(tree), limits=Limits(memory_mb=256, disk_mb=32)) for _ in range(2)]
for box in boxes:
    box.shell(f"setsid sleep {number} & echo x > new")
    box.snapshot()
    box.shell(f"setsid sleep {number} &")
if how == "command":
    threading.Thread(target=boxes[0].run, args=(f"sleep {number}",), daemon=True).start()
print("ready", flush=True)
if how == "return": sys.stdin.readline(); sys.exit(0)
if how == "raise": sys.stdin.readline(); raise RuntimeError("on purpose")
if how == "fork" and os.fork() == 0: sys.exit(0)
if how == "fork": os.wait()
if how in ("fork", "alive"):
    sys.stdin.readline()
    print([box.run("cat new").output for box in boxes] == ["x\\n", "x\\n"], flush=True)
    sys.exit(0)
time.sleep(600)
"""


class Other:
    """Another process that has two sandboxes."""

    def __init__(self, name: str, tree: Path, how: str) -> None:
        self.number = f"93{secrets.randbelow(10**9)}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), name, str(tree), self.number, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        assert self.process.stdout and self.process.stdin
        assert self.process.stdout.readline() == "ready\n"

    def go_on(self) -> str:
        """Let it go on to its end; return what it says."""
        return self.process.communicate("go\n", timeout=120)[0]


@pytest.fixture
def start(engine: Backend, tree: Path) -> Iterator[Callable[[str], Other]]:
    started: list[Other] = []

    def new(how: str) -> Other:
        started.append(Other(engine.name, tree, how))
        return started[-1]

    yield new
    for other in started:
        other.process.kill()
        other.process.wait(10)
        for stream in (other.process.stdin, other.process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
    reap()


class TestEndOfTheOwner:
    def test_killed(self, start: Callable[[str], Other], machine: Any) -> None:
        other, living = start("command"), start("alive")
        assert len(machine.left_of(other.pid)) >= 2 and machine.processes(other.number)
        other.process.kill()
        other.process.wait(10)
        assert machine.eventually(lambda: not machine.processes(other.number)), "processes run on before anybody has reaped"
        reap()
        assert machine.left_of(other.pid) == []
        assert machine.processes(living.number)
        assert living.go_on() == "True\n"

    @pytest.mark.parametrize("how", ["sleep", "command"])
    def test_terminated(self, start: Callable[[str], Other], machine: Any, how: str) -> None:
        other = start(how)
        other.process.terminate()
        assert other.process.wait(60) == -signal.SIGTERM
        assert machine.left_of(other.pid) == [] and not machine.processes(other.number)

    @pytest.mark.parametrize("how", ["return", "raise"])
    def test_ended_without_closing(self, start: Callable[[str], Other], machine: Any, how: str) -> None:
        other = start(how)
        assert machine.left_of(other.pid)
        other.go_on()
        assert machine.left_of(other.pid) == [] and not machine.processes(other.number)

    def test_a_forked_child_does_not_close_its_parents(self, start: Callable[[str], Other]) -> None:
        assert start("fork").go_on() == "True\n"


def test_without_a_sandbox_too_nothing_is_left(machine: Any, tree: Path) -> None:
    """The backend `none`: its guest ends what it started when the owner has gone."""
    for end in (signal.SIGKILL, signal.SIGTERM):
        other = Other("none", tree, "command")
        assert machine.left_of(other.pid) and machine.processes(other.number)
        other.process.send_signal(end)
        other.process.communicate()
        assert machine.eventually(lambda other=other: not machine.processes(other.number))
        reap()
        assert machine.left_of(other.pid) == []


def test_what_does_not_end_by_itself_is_reaped(machine: Any, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that cannot notice that its owner has gone: it is stopped."""
    machine.usable("bubblewrap")
    place = Path(tempfile.mkdtemp(prefix="agentgym-"))
    place.chmod(0o711)  # the sandbox's user passes through
    monkeypatch.setenv("AGENTGYM_RUN", str(place / "run"))  # so that no other process of the tests removes what this one does
    other = Other("bubblewrap", tree, "sleep")
    holders = [int(p) for p in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text("utf-8").split()]
    assert len(holders) == 2
    for pid in holders:
        os.kill(pid, signal.SIGSTOP)
    other.process.kill()
    other.process.communicate()
    time.sleep(0.3)
    assert all(owner.started(pid) for pid in holders) and machine.left_of(other.pid)
    assert reap() >= 2
    assert machine.eventually(lambda: not any(owner.started(pid) for pid in holders) and not machine.processes(other.number))
    reap()
    assert machine.left_of(other.pid) == []
    shutil.rmtree(place)


def test_a_container_of_a_dead_owner_is_reaped(machine: Any) -> None:
    """Containers that did not end by themselves, and one whose owner cannot be judged."""
    kind = machine.usable("docker")
    from agentgym.envs.swe.sandbox.container import remove_container
    from agentgym.envs.swe.sandbox.engine import client
    from agentgym.envs.swe.sandbox.image import base_image

    process = subprocess.Popen(["sleep", "0"])
    process.wait()
    me = owner.me()
    dead = me._replace(pid=process.pid)
    others = [me._replace(host="elsewhere", boot="00000000"), me._replace(space=1), me]
    assert kind.name == "docker"
    with contextlib.closing(client()) as api:
        image = base_image(api)
        labels = [{"agentgym.owner": str(x)} for x in (dead, dead._replace(pid=me.pid, start=1), *others)] + [{"agentgym.owner": "what is this"}, {}]
        made = [api.create_container(image, ["sleep", "100"], labels=each)["Id"] for each in labels]
        try:
            for name in made[:1]:
                api.start(name)
            assert reap() >= 2
            there = {c["Id"] for c in api.containers(all=True)}
            assert [name in there for name in made] == [False, False, True, True, True, True, True]
        finally:
            for name in made:
                remove_container(api, name)


class TestOwner:
    def test_written_and_read(self) -> None:
        me = owner.me()
        assert Owner.parse(str(me)) == me and me.pid == os.getpid() and not owner.dead(me)
        for text in ("", "1-2-3", "a-b-c-d-e", "1-2-x-a-b", str(me) + "-1"):
            assert Owner.parse(text) is None

    def test_who_is_dead(self) -> None:
        me = owner.me()
        assert owner.dead(me._replace(start=me.start + 1))  # the number was given to another process
        assert owner.dead(me._replace(boot="00000000"))  # before this machine was started
        assert not owner.dead(me._replace(space=1, pid=1 << 22))  # in another container
        assert not owner.dead(me._replace(host="00000000", pid=1 << 22))  # on another machine

    def test_a_zombie_is_dead(self) -> None:
        process = subprocess.Popen(["true"])
        start = None
        for _ in range(500):
            if Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z":
                start = owner.started(process.pid)
                break
            time.sleep(0.01)
        assert start is None
        process.wait()

    def test_a_folder_that_is_not_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        link = tmp_path / "link"
        link.symlink_to(tmp_path)
        monkeypatch.setenv("AGENTGYM_RUN", str(link))
        with pytest.raises(Exception, match="not a folder of this user"):
            owner.base()

    def test_what_is_left_is_removed_and_what_is_alive_is_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTGYM_RUN", str(tmp_path))
        process = subprocess.Popen(["sleep", "100"])
        dead, alive = owner.me()._replace(start=1), owner.me()
        for who in (dead, alive):
            place = tmp_path / str(who) / "1"
            place.mkdir(parents=True)
            (place / "work").mkdir()
            (place / "work" / "x").write_text("x", "utf-8")
            (place / "work").chmod(0o500)
            owner.note(place, pids=[(process.pid, owner.started(process.pid)), (os.getpid(), 1)], groups=["/sys/fs/cgroup/none"])
        (tmp_path / "something else").mkdir()
        assert reap() >= 1
        assert process.wait(10) == -signal.SIGKILL
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted([str(alive), "something else"])

    def test_folders_come_and_go_in_many_threads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last one that goes takes this process's own folder with it, while another is just being made in there."""
        monkeypatch.setenv("AGENTGYM_RUN", str(tmp_path))
        with ThreadPoolExecutor(8) as pool:
            places = list(pool.map(lambda _: [owner.discard(p) or p for p in (owner.folder() for _ in range(200))], range(8)))
        assert len({p for row in places for p in row}) == 1600 and not list(tmp_path.iterdir())

    def test_nothing_is_removed_below_a_mount(self, tmp_path: Path) -> None:
        if os.getuid():
            pytest.skip("mounting needs root")
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "precious").write_text("x", "utf-8")
        place = tmp_path / "place"
        (place / "work").mkdir(parents=True)
        subprocess.run(["mount", "--bind", str(tmp_path / "tree"), str(place / "work")], check=True)
        try:
            owner.remove_tree(place)
            assert (tmp_path / "tree" / "precious").exists()
        finally:
            subprocess.run(["umount", str(place / "work")], check=True)
        owner.remove_tree(place)
        assert not place.exists() and (tmp_path / "tree" / "precious").exists()


def test_sixteen_at_the_same_time(engine: Backend, tree: Path, machine: Any) -> None:
    """Nothing is left of them, and none sees another's files."""

    def episode(i: int) -> str:
        with engine.open(tree, limits=Limits(memory_mb=256, disk_mb=32)) as box:
            box.shell(f"echo {i} > mine; cd pkg; setsid sleep 9{i:04} &")
            for _ in range(5):
                box.run("echo x >> ../mine")
            box.run("sleep 60", timeout=0.3)
            first = box.run("cat mine").output
            box.reset()
            return first + box.run("ls mine 2>&1 | wc -l; cat README.md").output

    with engine.open(tree) as box:
        box.run("true")
    before = machine.left_of(os.getpid())
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(16) as pool:
        seen = list(pool.map(episode, range(16)))
    assert seen == [f"{i}\n1\n# wörld\n" for i in range(16)]
    assert machine.left_of(os.getpid()) == before
    assert threading.active_count() <= threads and len(os.listdir("/proc/self/fd")) <= descriptors


def interpreter_for_others() -> tuple[str, int] | None:
    """Return a Python of this version that a user without rights may run, and such a user's number."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if shutil.which("setpriv") and os.path.exists(python):
            done = subprocess.run(
                ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-c", "import os, sys; os.stat(sys._base_executable)"],
                capture_output=True,
            )
            if done.returncode == 0:
                return python, 12345
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="runs as a user without rights already")
def test_an_owner_without_rights(machine: Any, tree: Path, tmp_path: Path) -> None:
    """bubblewrap for a user that is not root: in a process that has become one."""
    machine.usable("bubblewrap")
    found = interpreter_for_others()
    if not found:
        pytest.skip("no Python of this version that another user may run")
    python, user = found
    folder = Path(f"/tmp/agentgym-test-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    links = folder / "lib" / "agentgym"
    links.mkdir(parents=True)
    root = Path(__file__).resolve().parents[3]
    for entry in (*(root / "agentgym").iterdir(), root / "envs"):
        (links / entry.name).symlink_to(entry)
    shutil.copytree(tree, folder / "tree", symlinks=True)
    shutil.copytree(tree, folder / "tree2", symlinks=True)
    with open(folder / "tree2" / "big", "wb") as f:
        f.truncate(300 << 20)
    for place in (folder / "run", folder / "cache"):
        place.mkdir(mode=0o711, exist_ok=True)
    subprocess.run(["chown", "-hR", f"{user}:{user}", *(str(folder / name) for name in ("run", "cache", "tree", "tree2"))], check=True)
    program = """
import sys
from pathlib import Path
from agentgym.envs.swe.sandbox import backend, Limits
kind = backend("bubblewrap")
print(kind.describe(), file=sys.stderr)
box = kind.open(Path(sys.argv[1]), limits=Limits(memory_mb=400, disk_mb=32, pids=40))
rename = "python -c 'import os; os.rename(\\"pkg\\", \\"other\\")'"
print(box.run(f"id -u; cat README.md; echo x >> README.md; {rename}; ls other; nproc; grep -c 'CapEff:.0000000000000000' /proc/self/status").output)
print("bomb", box.run(":() { : | : & }; :; sleep 20", timeout=2).timed_out, box.shell("echo alive", timeout=20).output)
print("disk", box.run("head -c 100M /dev/zero > big").code)
print("memory", "fits" in box.run("python -c 'x = bytearray(900 << 20); print(\\"fits\\")'").output)
box.reset(); print(box.run("cat README.md; ls pkg big").output)
box.run("echo 1 > one"); box.snapshot(); box.run("rm one"); box.reset(); print(box.run("cat one").output)
box.close()
with kind.open(Path(sys.argv[1] + "2")) as box:  # too large to be copied: an overlay
    box.run("echo x >> README.md; rm big; mkdir new"); box.snapshot(); box.run("echo x >> README.md"); box.reset()
    print(box.run("cat README.md; ls").output)
print("closed")
"""
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR")},
        "PYTHONPATH": f"{folder / 'lib'}:{Path(pytest.__file__).parents[1]}",
        "AGENTGYM_RUN": str(folder / "run"),
        "AGENTGYM_CACHE": str(folder / "cache"),
        "HOME": str(folder / "cache"),
    }
    try:
        done = subprocess.run(
            ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", python, "-c", program, str(folder / "tree")],
            capture_output=True,
            text=True,
            env=environment,
            cwd="/",
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.split("\n\n")[0] == "1000\n# wörld\n__init__.py\ncore.py\n1\n1"
        assert "bomb True" in done.stdout and "alive\n" in done.stdout and "memory False" in done.stdout and "disk 0" not in done.stdout
        assert "# wörld\n__init__.py\ncore.py\n" in done.stdout.split("memory False")[1] or "pkg:\n" in done.stdout
        assert done.stdout.endswith("1\n\n# wörld\nx\nREADME.md\na b\nempty\nlink\nnew\npkg\nrun.sh\n\nclosed\n")
        assert os.listdir(folder / "run") == [] and (folder / "tree" / "README.md").read_text("utf-8") == "# wörld\n"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
