"""Runs tests with pytest inside of a grading sandbox and says, test by test, what came of them.

Started by inside_supervisor.py as `python -s -B inside_worker.py REPORT PLAN`: two descriptors. All that this file needs is imported, and bound to
names of its own, before the first line of the tested code runs; where that code afterwards changes pytest's or Python's own functions, the report
says so.
Imports nothing of agentgym. Must run on Python 3.6 and pytest 5, the oldest that images of task sets have.
"""

import builtins
import contextlib
import fcntl
import importlib
import importlib.util
import json
import os
import sys
import types
import unittest  # noqa: F401 - to be watched
from typing import Any

import pluggy  # noqa: F401
import pytest

for _name in "assertion.rewrite assertion.util outcomes python python_api raises reports runner unittest fixtures main skipping".split():
    with contextlib.suppress(ImportError):  # other versions of pytest have other parts
        importlib.import_module("_pytest." + _name)

_WATCHED = ("_pytest", "pluggy", "pytest", "unittest")
_OWN = (types.FunctionType, types.BuiltinFunctionType, type, classmethod, staticmethod, property)
_FREE = frozenset(("__import__", "open", "print", "input", "help", "exit", "quit", "copyright", "credits", "license", "breakpoint", "_"))


def _code(value: Any) -> Any:
    value = getattr(value, "__func__", value)
    return getattr(value, "__code__", None), getattr(value, "__defaults__", None)


class Marks:
    """What pytest's and Python's own functions are now, to be compared with later."""

    def __init__(self, root: str) -> None:
        self.seen = []  # type: list[tuple[str, Any, str, Any, Any]]
        for name, module in sorted(sys.modules.items()):
            own = name.partition(".")[0] in _WATCHED and not str(getattr(module, "__file__", "")).startswith(root + os.sep)
            if own and isinstance(module, types.ModuleType):
                self._note(name, module)
        for name, value in vars(builtins).items():
            if name not in _FREE and callable(value):
                self.seen.append(("builtins", builtins, name, value, _code(value)))

    def _note(self, where: str, holder: Any, deep: bool = True) -> None:
        for name, value in list(vars(holder).items()):
            if isinstance(value, _OWN):
                self.seen.append((where, holder, name, value, _code(value)))
                if deep and isinstance(value, type) and value.__module__ == where:
                    self._note(f"{where}.{name}", value, False)

    def changed(self) -> "list[str]":
        """Return the names that mean something else now."""
        out = []
        for where, holder, name, value, code in self.seen:
            now = vars(holder).get(name)
            if now is not value or _code(now) != code:
                out.append(f"{where}.{name}")
        return out


class Reporter:
    """A plugin: selects the tests, and writes a line for each that has ended. A test passed where all its parts did and none was to fail."""

    def __init__(self, out: int, plan: "dict[str, Any]", marks: Marks) -> None:
        self._wanted = None if plan["only"] is None else frozenset(plan["only"])
        self._rank = {}  # type: dict[str, int]
        self._why = {}  # type: dict[str, str]
        nonce, count, write, dump = plan["nonce"], [0], os.write, json.dumps

        def say(**what: Any) -> None:
            count[0] += 1
            data = (dump([nonce, count[0], what]) + "\n").encode()
            while data:
                data = data[write(out, data) :]

        self._say, self._marks = say, marks

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: "list[Any]") -> None:
        wanted = self._wanted
        if wanted is not None:
            config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in wanted])
            items[:] = [i for i in items if i.nodeid in wanted]
        self._say(collected=len(items))

    def ready(self) -> None:
        """Say that pytest is there, and that the tested code comes next."""
        self._say(ready=True)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            rank = 3
            self._why.setdefault(report.nodeid, _last_line(report))
        elif report.skipped or hasattr(report, "wasxfail"):
            rank = 2
        else:
            rank = 1 if report.when == "call" else 0
        self._rank[report.nodeid] = max(rank, self._rank.get(report.nodeid, 0))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        rank = self._rank.pop(nodeid, 0)
        self._say(id=nodeid, result=("none", "passed", "skipped", "failed")[rank], why=self._why.pop(nodeid, ""))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._say(broken=report.nodeid, why=str(report.longrepr)[-500:])

    def done(self, code: int) -> None:
        """Say how the run ended."""
        self._say(exit=code, changed=self._marks.changed()[:20])


def _last_line(report: Any) -> str:
    """Return how a failure ends, in one line."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    text = str(getattr(crash, "message", None) or getattr(report, "longrepr", "") or "")
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def main() -> None:
    given, plan_fd = int(sys.argv[1]), int(sys.argv[2])
    out = fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, 200)  # out of the way of tests that count on small numbers, and of the processes that they start
    os.close(given)
    with os.fdopen(plan_fd, encoding="utf-8") as f:
        plan = json.load(f)
    sys.argv[:] = ["pytest"]
    os.environ.update(plan["env"])
    for path in reversed(plan["path"]):
        sys.path.insert(0, path)
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    reporter = Reporter(out, plan, Marks(plan["root"]))
    reporter.ready()
    leave, flush = os._exit, (sys.stdout.flush, sys.stderr.flush)
    alone = ["-n", "0"] if importlib.util.find_spec("xdist") and not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") else []  # no other processes
    code = int(pytest.main(plan["args"] + alone, plugins=[reporter]))
    reporter.done(code)
    for empty in flush:
        empty()
    leave(code)


if __name__ == "__main__":
    main()
