"""Watches a run of tests inside of a grading sandbox, where it has the same user as the tested code but nothing in common with it.

Run as `python -I -S inside_supervisor.py PLAN`. Its stdout has, first, a line `KEY` with a secret that it made up itself, and at the end a line
`REPORT` that is signed with it. The tested code is started after the first line was read by the owner: it cannot know the secret, for this process
cannot be looked into (it is not dumpable), and so it cannot sign a report. It can end this process; then there is no report, and nothing has passed.

What the tests gave comes from inside_worker.py over a pipe. That process belongs to the tested code as much as to the tests; what it says is checked
by its form here, and by canaries and twins in grade.py. Imports nothing of agentgym; must run on Python 3.6.
"""

import base64
import ctypes
import fcntl
import hashlib
import hmac
import json
import os
import resource
import select
import signal
import subprocess
import sys
import termios
import time
import zlib
from typing import Any

_DUMPABLE = 4  # prctl
_TAIL = 4000
_LINE = 1 << 20
_GRACE_S = 0.3  # for what the worker's pipes still hold when it has ended


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_DUMPABLE, 0, 0, 0, 0):
        sys.exit("this system does not let a process keep others out")
    key = os.urandom(16)
    with open(sys.argv[1], encoding="utf-8") as f:
        plan = json.load(f)
    os.unlink(sys.argv[1])
    print("KEY " + key.hex(), flush=True)
    _wait_until_read()
    before = _look(plan["guarded"])
    report = _Run(plan).report()
    report["touched"] = sorted(path for path, seen in _look(plan["guarded"]).items() if seen != before[path])
    data = zlib.compress(json.dumps(report).encode())
    signature, text = hmac.new(key, data, hashlib.sha256).hexdigest(), base64.b64encode(data).decode()
    print(f"\nREPORT {signature} {text}", flush=True)


def _wait_until_read() -> None:
    """Wait until the owner has read all that was written: from then on nobody else can."""
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        left = bytearray(4)
        try:
            fcntl.ioctl(1, termios.FIONREAD, left)
        except OSError:
            sys.exit("stdout is no pipe")
        if not any(left):
            return
        time.sleep(0.001)
    sys.exit("nobody reads")


def _look(paths: "list[str]") -> "dict[str, Any]":
    """Return what tells whether somebody touched a file, even if its content was put back: the time of change cannot be set."""
    out = {}  # type: dict[str, Any]
    for path in paths:
        try:
            seen = os.lstat(path)
            with open(path, "rb") as f:
                content = hashlib.sha256(f.read()).hexdigest()
            out[path] = [seen.st_ino, seen.st_ctime_ns, seen.st_mode, content]
        except OSError:
            out[path] = None
    return out


class _Run:
    """One run of the worker."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self.plan = plan
        self.nonce = base64.b64encode(os.urandom(12)).decode()
        self.count = 0
        self.tests = {}  # type: dict[str, list[str]]
        self.broken = []  # type: list[list[str]]
        self.odd = []  # type: list[str]
        self.collected = -1
        self.ready = False
        self.exit = None  # type: Any
        self.changed = []  # type: list[str]
        self.tail = b""
        self.rest = b""

    def report(self) -> "dict[str, Any]":
        """Run it and return what it gave."""
        mine, its = os.pipe()
        asked, told = os.pipe()
        start = time.monotonic()
        argv = [self.plan["python"], "-s", "-B", self.plan["worker"], str(its), str(asked)]
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(its, asked), cwd=self.plan["root"],
            env=self._environment(), start_new_session=True, preexec_fn=self._limit,
        )  # fmt: skip
        os.close(its)
        os.close(asked)
        keys = ("root", "path", "args", "only", "env")
        with os.fdopen(told, "w", encoding="utf-8") as f:
            try:
                json.dump(dict({k: self.plan[k] for k in keys}, nonce=self.nonce), f)
                f.flush()
            except OSError:  # it has ended already
                pass
        late = self._listen(process, mine, start + self.plan["seconds"])
        code = process.wait()
        if code in (-signal.SIGXCPU, -signal.SIGKILL) and time.monotonic() - start > 0.8 * self.plan["cpu"]:
            late = True
        return {
            "tests": self.tests, "broken": self.broken[:50], "odd": self.odd[:20], "exit": self.exit, "changed": self.changed,
            "ready": self.ready, "code": code, "late": late, "tail": self.tail.decode("utf-8", "replace"),
        }  # fmt: skip

    def _environment(self) -> "dict[str, str]":
        """Return the variables with which Python starts: none of them leads it to the tested code."""
        return dict({k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **self.plan["start"])

    def _limit(self) -> None:
        """Bind the worker's time; it runs in the child."""
        cpu = int(self.plan["cpu"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))

    def _listen(self, process: Any, report: int, deadline: float) -> bool:
        """Read from the worker until it ends; return whether it had to be ended."""
        output = process.stdout.fileno()
        todo = {report, output}
        ended = late = False
        while todo:
            if not ended and process.poll() is not None:
                ended, deadline = True, min(deadline, time.monotonic() + _GRACE_S)
            ready, _, _ = select.select(sorted(todo), [], [], max(0.0, min(0.05, deadline - time.monotonic())))
            for fd in ready:
                data = os.read(fd, 1 << 16)
                if not data:
                    todo.discard(fd)
                elif fd == output:
                    self.tail = (self.tail + data)[-_TAIL:]
                else:
                    self._take(data)
            if time.monotonic() >= deadline and not ready:
                late = not ended
                break
            if time.monotonic() >= deadline + 5:  # it writes without end
                late = not ended
                break
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        return late

    def _take(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        if len(self.rest) > _LINE:
            self._strange("a line without an end")
            self.rest = b""
        for line in lines:
            try:
                nonce, count, what = json.loads(line.decode())
                known = hmac.compare_digest(str(nonce), self.nonce)
            except (ValueError, TypeError):
                known, count, what = False, 0, {}
            if not known or count != self.count + 1 or self.exit is not None or not isinstance(what, dict):
                self._strange("a line that is not the reporter's, or not in its turn")
                continue
            self.count += 1
            self._note(what)

    def _note(self, what: "dict[str, Any]") -> None:
        if "id" in what:
            if str(what["id"]) in self.tests or self.collected < 0:
                self._strange("a test that ended twice, or before the tests were collected")
            self.tests[str(what["id"])] = [str(what.get("result")), str(what.get("why"))[:200]]
        elif "broken" in what:
            self.broken.append([str(what["broken"]), str(what.get("why"))[:500]])
        elif "ready" in what:
            self.ready = True
        elif "collected" in what:
            if self.collected >= 0:
                self._strange("a second collection")
            self.collected = int(what["collected"])
        elif "exit" in what:
            self.exit, self.changed = what["exit"], [str(x) for x in what.get("changed", [])]

    def _strange(self, what: str) -> None:
        if len(self.odd) < 20:
            self.odd.append(what)


if __name__ == "__main__":
    main()
