"""SWE sandboxes: set-up, latency of commands, reset and end, for each backend that can run here; `--soak` is many episodes at the same time.

    python tests/bench/bench_sandbox.py [--backend docker bubblewrap] [--files 5000] [--repeat 20] [--out FILE.json]
    python tests/bench/bench_sandbox.py --soak 600 [--episodes 16] [--backend bubblewrap]

Times are wall-clock medians, since most of the work is done in other processes: an idle machine gives the best ones. The work tree has `--files`
small files. A soak keeps `--episodes` threads busy with whole episodes (open, commands, a time-out, a full disk, orphans, reset, close) for so many
seconds, and then counts what is left of them: processes, containers, mounts, folders, control groups, descriptors, threads, memory.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _out

from agentgym.envs.swe.sandbox import Backend, Limits, Sandbox, SandboxMissing, backend, owner
from agentgym.listen import memory_mb

GOAL_RESET_S = 1.0


def make_tree(folder: Path, files: int) -> Path:
    """Write a tree of so many files of 1 to 16 kB, 20 in a folder."""
    rng = random.Random(0)
    for i in range(files):
        file = folder / f"d{i // 400}" / f"e{i // 20}" / f"f{i}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes(rng.randrange(1000, 16_000)))
    return folder


def median_ms(act: Callable[[], Any], repeat: int) -> float:
    """Return the median milliseconds of an action."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measure(kind: Backend, tree: Path, repeat: int) -> dict[str, float]:
    """Return the figures of one backend, in milliseconds."""
    kind.open(tree).close()  # its image, or its Python, is made now
    boxes: list[Sandbox] = []
    found = {"open": median_ms(lambda: boxes.append(kind.open(tree)), 5)}
    for box in boxes[1:]:
        box.close()
    box = boxes[0]
    box.shell("true")
    box.read("d0/e0/f0.py")
    found["shell, builtin"] = median_ms(lambda: box.shell("x=1"), 20 * repeat)
    found["shell, program"] = median_ms(lambda: box.shell("ls > /dev/null"), 5 * repeat)
    found["one-shot, builtin"] = median_ms(lambda: box.run("x=1"), repeat)
    found["one-shot, python -c pass"] = median_ms(lambda: box.run("python -c pass"), repeat)
    found["one-shot, pytest --version"] = median_ms(lambda: box.run("pytest --version"), 5)
    found["read 8 kB"] = median_ms(lambda: box.read("d0/e0/f0.py"), repeat)
    found["write 8 kB"] = median_ms(lambda: box.write("new.py", bytes(8000)), repeat)
    found["time-out of 0.2 s, beyond it"] = median_ms(lambda: box.run("setsid sleep 100 & sleep 100", timeout=0.2), 5) - 200
    found["100 MB of output"] = median_ms(lambda: box.run("head -c 100000000 /dev/zero"), 3)
    seconds = []
    for i in range(5):
        box.run(f"rm -rf d1; mv d2 e2; for f in d3/*/*; do echo x >> $f; done; for n in {{1..200}}; do echo {i} > new$n; done", timeout=120)
        start = time.perf_counter()
        box.reset()
        seconds.append(time.perf_counter() - start)
    found["reset"] = 1000 * statistics.median(seconds)
    found["snapshot"] = median_ms(box.snapshot, 3)
    start = time.perf_counter()
    box.close()
    found["close"] = 1000 * (time.perf_counter() - start)
    return found


def episode(kind: Backend, tree: Path, seed: int) -> None:
    """Do what an agent may do, and check that it came out as it should."""
    rng = random.Random(seed)
    with kind.open(tree, limits=Limits(memory_mb=256, disk_mb=32, pids=64)) as box:
        for _ in range(rng.randrange(5, 20)):
            word = f"{rng.random()}"
            done = box.shell(f"cd d0; echo {word} | tee -a mine; cd ..")
            assert done.output.endswith(f"{word}\n"), done
        act = rng.randrange(6)
        if act == 0:
            assert box.shell("setsid sleep 1000 & sleep 1000", timeout=1).timed_out
        elif act == 1:
            assert box.run("head -c 100M /dev/zero > full; c=$?; rm full; exit $c").code
        elif act == 2:
            box.run(":() { : | : & }; :; sleep 5", timeout=1)
        elif act == 3:
            assert box.run("yes | head -c 20000000").dropped > 19_000_000
        elif act == 4:
            box.run("kill -9 -1")
        else:
            assert box.run("python -c 'print(6 * 7)'").output == "42\n"
        box.write("note", word.encode())
        assert box.read("note").decode() == word
        box.reset()
        assert box.run("ls note d0/mine 2>/dev/null").output == ""


def left() -> dict[str, int]:
    """Count what this process has of sandboxes on this machine, and its own descriptors, threads and megabytes."""
    mine = str(owner.me())
    processes = sum(len(children.read_text("utf-8").split()) for children in Path("/proc/self/task").glob("*/children"))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                processes += mine.encode() in (entry / "cmdline").read_bytes()
    containers = 0
    with contextlib.suppress(SandboxMissing):
        from agentgym.envs.swe.sandbox.engine import client

        with contextlib.closing(client()) as api:
            containers = sum(c["Labels"]["agentgym.owner"] == mine for c in api.containers(all=True, filters={"label": "agentgym.owner"}))
    gc.collect()
    return {
        "processes": processes,
        "containers": containers,
        "folders": len(list(owner.base().glob(f"{mine}/*"))),
        "control groups": len(list(Path("/sys/fs/cgroup").glob(f"**/agentgym-{mine}-*"))),
        "mounts": Path("/proc/mounts").read_text("utf-8").count(mine),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "memory, MB": round(memory_mb()),
    }


def soak(kind: Backend, tree: Path, seconds: float, at_once: int) -> dict[str, Any]:
    """Run episodes for so many seconds; return how many there were, what failed, and what is left."""
    for i in range(at_once):
        episode(kind, tree, i)
    before = left()
    end, lock = time.monotonic() + seconds, threading.Lock()
    count, failed, memory = at_once, [], [memory_mb()]

    def work(number: int) -> None:
        nonlocal count
        while time.monotonic() < end:
            with lock:
                count += 1
                seed = count
            try:
                episode(kind, tree, seed)
            except Exception as e:
                with lock:
                    failed.append(f"episode {seed}: {type(e).__name__}: {str(e)[:300]}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(at_once)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        memory.append(memory_mb())
    for thread in threads:
        thread.join()
    tenths = [round(statistics.median(memory[len(memory) * i // 10 :][: len(memory) // 10 + 1])) for i in range(10)]
    return {"episodes": count - at_once, "failed": failed, "before": before, "after": left(), "memory by tenths of the time, MB": tenths}


def show_soak(name: str, found: dict[str, Any], seconds: float, at_once: int) -> bool:
    """Print the figures of a soak; return whether nothing is left."""
    print(f"{name}: {found['episodes']} episodes in {seconds:.0f} s, {at_once} at the same time, {len(found['failed'])} failed", flush=True)
    for line in found["failed"][:10]:
        print(f"  {line}")
    good = not found["failed"]
    for what, before in found["before"].items():
        after = found["after"][what]
        fine = after <= before or what == "memory, MB"  # a thread's first episodes take memory that is kept for the next ones
        good &= fine
        print(f"  {what:<16} before {before:>5}  after {after:>5}{'' if fine else '   LEFT OVER'}")
    memory = found["memory by tenths of the time, MB"]
    grows = memory[-1] - memory[2] > 10
    print(f"  memory by tenths of the time, MB: {memory}{'   IT GROWS' if grows else ''}")
    return good and not grows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", nargs="+", default=["docker", "bubblewrap"], choices=["docker", "bubblewrap", "none"])
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"goals": []}
    goals = result["goals"]
    for name in options.backend:
        try:
            with warnings.catch_warnings(action="ignore"):
                kind = backend(name)
        except SandboxMissing as e:
            print(f"{name} is not measured: {e}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            if options.soak:
                found = result[name] = soak(kind, make_tree(Path(folder), 200), options.soak, options.episodes)
                clean = show_soak(name, found, options.soak, options.episodes)
                what = f"{name}: what is left of {options.episodes} episodes at a time"
                value = f"{found['episodes']} episodes, {len(found['failed'])} failed"
                goals.append({"what": what, "value": value, "goal": "nothing", "met": clean})
                continue
            figures = result[name] = measure(kind, make_tree(Path(folder), options.files), options.repeat)
        for what, ms in figures.items():
            print(f"{name:<12} {what:<32} {ms:>9.2f} ms", flush=True)
        what = f"{name}: reset of a tree of {options.files:,} files"
        goals.append({"what": what, "value": f"{figures['reset'] / 1000:.2f} s", "goal": "< 1 s", "met": figures["reset"] < 1000 * GOAL_RESET_S})
    for goal in goals:
        print(f"{goal['what']}: {goal['value']} (goal {goal['goal']}: {'met' if goal['met'] else 'not met'})")
    if options.out:
        _out.write(result, options.out)


if __name__ == "__main__":
    main()
