"""A pytest plugin for the builder: every test's result by its id, and on request what the tests called and what came of it.

It is copied next to the tree under test and loaded there by name, so it imports nothing of agentgym. Environment:

    SWE_PROBE_OUT    the file to write, JSON lines, appended test by test: a killed run leaves what was done until then
    SWE_PROBE_ONLY   a file with the ids of the tests to run, one JSON text a line; without it all run
    SWE_PROBE_CPU    seconds of CPU after which the process is ended
    SWE_PROBE_TRACE  folders of the package's code, separated by ":"; without it nothing is traced
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_LONG = 2000
_ALARM = 10.0  # seconds for one traced test: looking at an object may wait for a lock that the test holds


class TooLong(BaseException):
    """A traced test is stopped; no test catches it by chance."""


def _too_long(number: int, frame: object) -> None:
    raise TooLong(f"the traced test took more than {_ALARM} s")


class Probe:
    """Collects results; one line a test, written as soon as it ends."""

    def __init__(self) -> None:
        self.out = open(os.environ["SWE_PROBE_OUT"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for the whole session
        self.rank: dict[str, int] = {}
        self.failure: dict[str, dict[str, Any]] = {}
        self.compared: list[str] | None = None
        self.tracer: Any = None
        if os.environ.get("SWE_PROBE_TRACE"):
            import swe_tracer  # copied beside this file

            self.tracer = swe_tracer.Tracer(os.environ["SWE_PROBE_TRACE"].split(":"))

    def write(self, line: dict[str, Any]) -> None:
        self.out.write(json.dumps(line, ensure_ascii=True) + "\n")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if os.environ.get("SWE_PROBE_ONLY"):
            with open(os.environ["SWE_PROBE_ONLY"], encoding="utf-8") as f:
                wanted = {json.loads(line) for line in f}
            config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in wanted])
            items[:] = [i for i in items if i.nodeid in wanted]
        self.write({"collected": len(items)})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        if self.tracer:
            self.tracer.start()
        try:
            return (yield)
        finally:
            if self.tracer:
                self.tracer.pause()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self.compared = None
        if self.tracer:
            signal.signal(signal.SIGALRM, _too_long)
            signal.setitimer(signal.ITIMER_REAL, _ALARM)
            self.tracer.resume()
        try:
            return (yield)
        finally:
            if self.tracer:
                self.tracer.pause()
                signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> None:
        if self.tracer:
            self.compared = [op, self.tracer.shown(left), self.tracer.shown(right)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst of a test's parts: "failed" is failed, whatever passes before or after; "passed" needs the call itself."""
        expected = hasattr(report, "wasxfail")
        if report.failed:
            rank = 3
        elif report.skipped or expected:
            rank = 2
        else:
            rank = 1 if report.when == "call" else 0
        self.rank[report.nodeid] = max(rank, self.rank.get(report.nodeid, 0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self.tracer and call.excinfo is not None and report.failed and report.nodeid not in self.failure:
            self.failure[report.nodeid] = self.tracer.failure(call.excinfo, self.compared)
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        result = ("none", "passed", "skipped", "failed")[self.rank.pop(nodeid, 0)]
        line: dict[str, Any] = {"id": nodeid, "result": result}
        if self.tracer:
            line["calls"] = self.tracer.calls()
            line["failure"] = self.failure.pop(nodeid, None)
        self.write(line)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write({"broken": report.nodeid, "why": str(report.longrepr)[-_LONG:]})

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.write({"exit": int(exitstatus)})


def _limit() -> None:
    """Bind this process and its children: a bug may fill the memory or the disk, or never end."""
    import resource

    cpu = int(os.environ.get("SWE_PROBE_CPU", "600"))
    for what, most in ((resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_FSIZE, 256 << 20), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def pytest_configure(config: pytest.Config) -> None:
    _limit()
    config.pluginmanager.register(Probe(), "swe-probe-results")
