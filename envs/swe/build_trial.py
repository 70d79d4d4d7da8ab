"""One bug of one package: make it, run the tests, and note which fail and what they saw."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import DataError

from . import diffs, mutate
from .build_run import Outcome, Runner, RunTests
from .examples import Example, differences
from .packages import Package, sources, unpack

_TRACED = 40  # failing tests that are looked at for the description


@dataclass(frozen=True)
class Bug:
    """One or two sites, by file, and the diff that they make."""

    sites: tuple[tuple[str, mutate.Site], ...]
    diff: str

    @property
    def key(self) -> str:
        """Return the bug's name: a hash of what it changes."""
        return hashlib.sha256(self.diff.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Baseline:
    """The tests of the sound package that pass each time, in the order of a run; the calls of each; the seconds of a run."""

    tests: tuple[str, ...]
    calls: Mapping[str, list[dict[str, Any]]]
    seconds: float


@dataclass(frozen=True)
class Trial:
    """What came of a bug.

    kind      "valid"; "same": no test fails; "many": more than a third; "hang"; "broken": no test passes or the run ended early; "unsteady":
              a test fails with one order of sets only; "none": the operator's result is no small change
    failing   numbers of the tests that fail, in the baseline's order
    """

    kind: str
    failing: tuple[int, ...] = ()
    examples: tuple[Example, ...] = ()
    seconds: float = 0.0

    def as_row(self) -> dict[str, Any]:
        """Return the trial as JSON data."""
        return {"kind": self.kind, "failing": list(self.failing), "examples": [e.as_row() for e in self.examples], "seconds": round(self.seconds, 2)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Trial:
        """Return the trial of what `as_row` gave."""
        return cls(row["kind"], tuple(row["failing"]), tuple(map(Example.from_row, row["examples"])), row["seconds"])


class Bench:
    """A folder in which one bug after the other of a package is tried. One thread at a time."""

    def __init__(self, package: Package, folder: Path, run: RunTests | None = None) -> None:
        self.package, self.folder = package, folder
        self.clean, self.tree = folder / "clean", folder / "tree"
        shutil.rmtree(folder, ignore_errors=True)
        unpack(package, self.clean)
        self.text = {path: (self.clean / path).read_bytes().decode() for path in sources(package, self.clean)}
        self.run = run or Runner(folder / "runner")

    def fresh(self, changed: Mapping[str, str] | None = None) -> Path:
        """Return the tree as it was unpacked, with some files changed."""
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(self.clean, self.tree)
        for path, text in (changed or {}).items():
            (self.tree / path).write_bytes(text.encode())
        return self.tree

    def baseline(self) -> Baseline:
        """Run the sound package four times: twice with another order of sets, twice with the calls noted. Raises DataError where nothing passes."""
        runs = [self.run(self.package, self.fresh(), timeout=300, seed=seed) for seed in (0, 1)]
        traced = [self.run(self.package, self.fresh(), timeout=600, trace=True, seed=seed) for seed in (0, 1)]
        passed = set.intersection(*(o.passed() for o in runs))
        tests = tuple(id for id in runs[0].results if id in passed)
        if not tests or not all(o.finished for o in runs):
            raise DataError(f"the tests of {self.package.name} {self.package.version} do not run here: {runs[0].broken} {runs[0].output[-500:]}")
        first, second = ({r["id"]: r["calls"] for r in o.records} for o in traced)
        calls = {id: _steady(first.get(id, []), second.get(id, [])) for id in tests}
        return Baseline(tests, calls, max(o.seconds for o in runs))

    def changed(self, bug: Bug) -> dict[str, str]:
        """Return the files of a bug with it."""
        return {file.path: diffs.patched(self.text[file.path], file) for file in diffs.parse(bug.diff)}

    def bug(self, sites: tuple[tuple[str, mutate.Site], ...]) -> Bug | None:
        """Return the bug of some sites, or None where one of them is no small change. The later site of a file goes first."""
        after: dict[str, str] = {}
        for path, site in sorted(sites, key=lambda s: (s[0], s[1].node), reverse=True):
            try:
                after[path] = mutate.apply(after.get(path, self.text[path]), site)
            except DataError:
                return None
        return Bug(sites, diffs.unified({path: self.text[path] for path in after}, after))

    def trial(self, bug: Bug, base: Baseline) -> Trial:
        """Run the tests with a bug; where it is valid, run those that fail again, and note what they saw."""
        allowed = len(base.tests) // 3
        changed = self.changed(bug)
        first = self.run(self.package, self.fresh(changed), timeout=max(10.0, 6 * base.seconds), most=allowed + 30)
        kind, failing = _judged(first, base, allowed)
        if kind != "valid":
            return Trial(kind, seconds=first.seconds)
        ids = [base.tests[i] for i in failing]
        again = self.run(self.package, self.fresh(changed), timeout=max(20.0, 10 * base.seconds), only=ids[:_TRACED], trace=True, seed=1)
        seconds = first.seconds + again.seconds
        if again.timed_out or any(again.results.get(id) == "passed" for id in ids):
            return Trial("unsteady", seconds=seconds)
        records = {r["id"]: r for r in again.records}
        examples = [e for i, id in zip(failing, ids, strict=True) if id in records for e in differences(base.calls.get(id, []), records[id], i)]
        return Trial("valid", failing, tuple(examples), seconds)


def _judged(outcome: Outcome, base: Baseline, allowed: int) -> tuple[str, tuple[int, ...]]:
    """Return the kind of a trial and the tests that fail: absent counts as failed."""
    if outcome.timed_out:
        return "hang", ()
    passed = outcome.passed()
    failing = tuple(i for i, id in enumerate(base.tests) if id not in passed)
    if not failing:
        return "same", ()
    if not outcome.finished or len(failing) == len(base.tests):
        return "broken", ()
    return ("many" if len(failing) > max(1, allowed) else "valid"), failing


def _steady(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of two runs of a test, with the result None where the runs differ."""
    out = []
    for one, two in zip(first, second, strict=False):
        if one["call"] != two["call"]:
            break
        out.append(one if one["result"] == two["result"] else {**one, "result": None})
    return out


# --- on disk -------------------------------------------------------------------------------------------------------


class Journal:
    """What is known of a package's bugs, a line each, appended as soon as it is known: a killed builder loses only what was running."""

    def __init__(self, file: Path) -> None:
        self.trials: dict[str, Trial] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        data = file.read_bytes() if file.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.decode().split("\n"):
            if line:
                row = json.loads(line)
                self.trials[row["bug"]] = Trial.from_row(row)
        self.out = open(file, "r+b" if data else "wb")  # noqa: SIM115 - open while the builder runs
        self.out.truncate(len(whole))  # a last line that was cut off
        self.out.seek(len(whole))

    def add(self, key: str, trial: Trial) -> None:
        """Note a trial."""
        self.trials[key] = trial
        self.out.write(json.dumps({"bug": key, **trial.as_row()}).encode() + b"\n")
        self.out.flush()

    def close(self) -> None:
        """Close the file."""
        self.out.close()


def kept_baseline(bench: Bench, file: Path) -> Baseline:
    """Return the baseline that is in a file, or measure it and keep it there."""
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as f:
            row = json.load(f)
        return Baseline(tuple(row["tests"]), row["calls"], row["seconds"])
    base = bench.baseline()
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with gzip.open(part, "wt", encoding="utf-8") as f:
        json.dump({"tests": base.tests, "calls": base.calls, "seconds": base.seconds}, f)
    os.replace(part, file)
    return base
