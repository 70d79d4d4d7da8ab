"""Estimators by hand, and the panel: failures, resuming, refusing, comparing."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agentgym.errors import DataError, EnvError, TaskError
from agentgym.evaluate import Report, compare, evaluate, pass_at_k, table, wilson
from agentgym.report import Panel, Row, effective_n, summarise
from agentgym.types import Completion, Status, Step, Task, Trajectory


def tasks(n: int) -> list[Task]:
    return [Task(f"t{i}", "toy", "test", data={"task_type": "even" if i % 2 == 0 else "odd"}) for i in range(n)]


def episode(task: Task, success: bool, steps: int = 2, status: Status = Status.TERMINATED) -> Trajectory:
    def step(i: int) -> Step:
        return Step([], i == 0, Completion("go"), "go", i > 0, "seen", 0.0, "s")

    return Trajectory(task, "g", [step(i) for i in range(steps)], {}, float(success), success, status)


class Player:
    """Wins where `wins(task index, sample)` says so, and remembers what it played."""

    def __init__(self, wins=lambda i, s: True, breaks=lambda i, s: False) -> None:
        self.wins, self.breaks, self.played = wins, breaks, []

    async def __call__(self, task: Task, sample: int) -> Trajectory:
        i = int(task.id[1:])
        self.played.append((i, sample))
        await asyncio.sleep(0)
        if self.breaks(i, sample):
            raise EnvError("the server is gone")
        return episode(task, self.wins(i, sample))


def run(*args, **kwargs) -> Report:
    return asyncio.run(evaluate(*args, **kwargs))


# ---- estimators


def test_wilson_by_hand() -> None:
    # z = 2, n = 4, c = 2: middle (½ + 4/8)/2 = ½, half 2 √(1/16 + 4/64)/2 = √(1/8)
    assert wilson(2, 4, z=2) == pytest.approx((0.5 - math.sqrt(1 / 8), 0.5 + math.sqrt(1 / 8)))
    # c = 0: low is 0, high z²/(n + z²); c = n mirrors it
    assert wilson(0, 4, z=2) == pytest.approx((0.0, 0.5))
    assert wilson(4, 4, z=2) == pytest.approx((0.5, 1.0))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 7)[0] == 0.0 and wilson(7, 7)[1] == 1.0


def test_pass_at_k_by_hand() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)  # 1 − C(3,2)/C(4,2) = 1 − 3/6
    assert pass_at_k(4, 2, 3) == 1.0  # three of four samples cannot miss two successes
    assert pass_at_k(5, 0, 3) == 0.0 and pass_at_k(5, 5, 1) == 1.0
    for n, c, k in ((3, 1, 4), (3, 1, 0), (3, 4, 1)):
        with pytest.raises(ValueError, match="pass_at_k"):
            pass_at_k(n, c, k)


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    outcomes = (1, 1, 0, 0, 0)
    every = [any(s) for s in itertools.combinations(outcomes, 3)]
    assert pass_at_k(5, 2, 3) == pytest.approx(sum(every) / len(every))


def test_effective_n_by_hand() -> None:
    # Two of four tasks always win: samples add nothing. p = ½, Σ(c−pn)² = 4·(3/2)² = 9, v = 4/3 · 9/144 = 1/12, ¼/v = 3 = m − 1.
    assert effective_n([(3, 3), (3, 3), (0, 3), (0, 3)]) == pytest.approx(3.0)
    # Every task wins once in two: there is no variance between tasks, all episodes count.
    assert effective_n([(1, 2)] * 5) == 10.0
    # Nothing to learn from the spread: one episode per task counts.
    assert effective_n([(0, 4)] * 5) == 5.0 and effective_n([(4, 4)] * 5) == 5.0
    assert effective_n([(1, 4)]) == 1.0 and effective_n([]) == 0.0


def test_the_clustered_interval_covers_where_the_naive_one_does_not() -> None:
    rng, m, k = np.random.default_rng(0), 40, 8
    clustered = naive = 0
    for _ in range(400):
        ability = rng.beta(0.5, 0.5, size=m)  # mean ½: tasks are mostly easy or mostly hard
        counts = [(int(c), k) for c in rng.binomial(k, ability)]
        c = sum(x for x, _ in counts)
        n = effective_n(counts)
        low, high = wilson(c / (m * k) * n, n)
        clustered += low <= 0.5 <= high
        low, high = wilson(c, m * k)
        naive += low <= 0.5 <= high
    assert clustered / 400 > 0.92 and naive / 400 < 0.75


# ---- the panel


def test_a_report_by_hand() -> None:
    report = run(Player(wins=lambda i, s: i < 3), tasks(4), panel="greedy")
    assert (report.n, report.success, report.tasks, report.k) == (4, 0.75, 4, 1)
    assert (report.low, report.high) == wilson(3, 4) and report.interval == "Wilson"
    assert report.mean_steps == 2 and report.invalid_share == 0.5 and report.mean_return == 0.75
    assert report.types["even"].success == 1.0 and report.types["odd"].n == 2
    assert report.pass_at_k == {1: 0.75} and report.errors == 0 and report.truncated == 0


def test_causes_are_counted_where_environments_say_them() -> None:
    cause = {0: "regression", 1: "failing", 2: "failing", 3: None, 4: "ignored"}

    async def play(task: Task, sample: int) -> Trajectory:
        made = await Player(wins=lambda i, s: i == 4)(task, sample)
        n = int(task.id[1:])
        last = dataclasses.replace(made.steps[-1], info={"cause": cause[n]} if cause[n] else {})
        return dataclasses.replace(made, steps=[*made.steps[:-1], last])

    report = run(play, tasks(5))
    assert report.causes == {"failing": 2, "regression": 1} and list(report.causes) == ["failing", "regression"]
    assert "not solved, by cause: failing 2, regression 1" in str(table(report).caption)
    assert Report.from_json(report.to_json()).causes == report.causes
    assert run(Player(wins=lambda i, s: i < 3), tasks(4)).causes == {}


def test_the_average_over_types_counts_each_type_alike() -> None:
    report = run(Player(wins=lambda i, s: i < 3), tasks(5))  # even: 0, 2 of 0, 2, 4; odd: 1 of 1, 3
    assert report.macro == pytest.approx((2 / 3 + 1 / 2) / 2) != report.success == 0.6
    summary = report.summary()
    assert summary["macro"] == report.macro and summary["success/even"] == pytest.approx(2 / 3) and summary["success/odd"] == 0.5


def test_several_samples_cluster_by_task() -> None:
    report = run(Player(wins=lambda i, s: i < 2), tasks(4), k=3)
    assert report.n == 12 and report.pass_at_k == {1: 0.5, 2: 0.5, 3: 0.5}
    assert "clustered" in report.interval and (report.low, report.high) == pytest.approx(wilson(1.5, 3))


def test_failures_are_counted_and_are_no_failures_of_the_agent() -> None:
    async def play(task: Task, sample: int) -> Trajectory:
        if task.id == "t0":
            raise EnvError("the server is gone")
        if task.id == "t1":
            raise KeyError("a bug")
        if task.id == "t2":
            return Trajectory(task, "g", status=Status.ERROR, error="timed out")
        return episode(task, True, status=Status.TRUNCATED)

    report = run(play, tasks(5))
    assert (report.n, report.success, report.errors, report.truncated) == (2, 1.0, 3, 2)
    assert set(report.error_reasons) == {"1 × the server is gone", "1 × KeyError: 'a bug'", "1 × timed out"}
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(report))
    assert "3 episodes BROKE" in console.export_text() and "BROKE" in report.line()


def test_nothing_scored_is_not_zero() -> None:
    report = run(Player(breaks=lambda i, s: True), tasks(2), k=2)
    assert report.n == 0 and math.isnan(report.success) and (report.low, report.high) == (0.0, 1.0)
    assert json.loads(report.to_json())["success"] is None and report.summary()["success"] is None
    assert math.isnan(Report.from_json(report.to_json()).success)
    assert "no episode" in report.line() and table(report).row_count == 1


def test_json_round_trip(tmp_path: Path) -> None:
    report = run(Player(wins=lambda i, s: s == 0, breaks=lambda i, s: i == 1), tasks(3), k=2, out=tmp_path)
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json((tmp_path / "results.json").read_text()) == report
    for text in ("{}", "[]", "{", '{"speed": 3}'):
        with pytest.raises(DataError, match="not a report"):
            Report.from_json(text)


def test_at_most_so_many_at_once() -> None:
    now = most = 0

    async def play(task: Task, sample: int) -> Trajectory:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return episode(task, True)

    seen: list[tuple[int, int]] = []
    assert run(play, tasks(10), concurrency=3, progress=lambda *a: seen.append(a)).n == 10
    assert most == 3 and seen == [(i, 10) for i in range(11)]


def test_resuming_plays_only_what_is_missing(tmp_path: Path) -> None:
    first = Player(wins=lambda i, s: i == 0, breaks=lambda i, s: i == 3)
    whole = run(first, tasks(4), k=2, out=tmp_path)
    path = tmp_path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    kept = [line for line in lines if b"t3" not in line]
    path.write_bytes(b"".join(kept[:-1]) + kept[-1][:-9])  # killed while writing the last one
    lost = json.loads(kept[-1])
    second = Player(wins=first.wins)
    report = run(second, tasks(4), k=2, out=tmp_path)
    assert sorted(second.played) == sorted([(3, 0), (3, 1), (int(lost["task"][-1]), lost["sample"])])
    assert report.n == 8 and whole.errors == 2 and report.errors == 0
    third = Player()
    again = run(third, tasks(4), k=2, out=tmp_path)
    assert third.played == [] and again.success == report.success == 0.25


def test_broken_episodes_are_played_again(tmp_path: Path) -> None:
    run(Player(breaks=lambda i, s: i == 1), tasks(3), out=tmp_path)
    again = Player()
    assert run(again, tasks(3), out=tmp_path).errors == 0 and again.played == [(1, 0)]


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    async def play(task: Task, sample: int) -> Trajectory:
        if task.id == "t2":
            raise KeyboardInterrupt
        return episode(task, True)

    with pytest.raises(KeyboardInterrupt):
        run(play, tasks(4), concurrency=1, out=tmp_path)
    rest = Player()
    assert run(rest, tasks(4), out=tmp_path).n == 4 and [i for i, _ in rest.played] == [2, 3]


def test_another_panel_in_the_folder_is_refused(tmp_path: Path) -> None:
    run(Player(), tasks(3), out=tmp_path, panel="greedy")
    for other, what in ((dict(k=2, panel="greedy"), "k is 1 and 2"), (dict(panel="t=1"), "'greedy' and 't=1'")):
        with pytest.raises(DataError, match=what):
            run(Player(), tasks(3), out=tmp_path, **other)
    with pytest.raises(DataError, match="1 tasks only in the second"):
        run(Player(), tasks(4), out=tmp_path, panel="greedy")
    assert run(Player(), list(reversed(tasks(3))), out=tmp_path, panel="greedy").n == 3  # the order does not matter


def test_damage_and_mixed_files_are_named(tmp_path: Path) -> None:
    run(Player(), tasks(2), out=tmp_path)
    path = tmp_path / "episodes.jsonl"
    good = path.read_text()
    path.write_text(good.replace('"panel": "', '"panel": "x'))
    with pytest.raises(DataError, match="mixed"):
        run(Player(), tasks(2), out=tmp_path)
    path.write_text("{oops\n" + good)
    with pytest.raises(DataError, match="line 1 is not JSON"):
        run(Player(), tasks(2), out=tmp_path)


def test_a_panel_needs_distinct_tasks() -> None:
    for wrong in ([], tasks(2) + tasks(1)):
        with pytest.raises(TaskError):
            run(Player(), wrong)


# ---- comparison


def test_compare_by_hand(tmp_path: Path) -> None:
    run(Player(wins=lambda i, s: i < 4), tasks(10), out=tmp_path / "a")
    run(Player(wins=lambda i, s: 1 <= i < 9), tasks(10), out=tmp_path / "b")
    c = compare(tmp_path / "a", tmp_path / "b")
    assert (c.both, c.only_a, c.only_b, c.neither) == (3, 1, 5, 1)
    assert c.a == pytest.approx(0.4) and c.b == pytest.approx(0.8) and c.difference == pytest.approx(0.4)
    # σ of the mean of nine values: d = −1 once, +1 five times, 0 four times → √((0.6 − 0.16)/10) = 0.21; normal: 0.4 ± 0.41
    assert c.low == pytest.approx(0.0, abs=0.11) and c.high == pytest.approx(0.8, abs=0.11) and 0.02 < c.p < 0.2
    assert c == compare(tmp_path / "a", tmp_path / "b")  # seeded
    assert "b − a +40.0%" in str(c) and json.loads(c.to_json())["tasks"] == 10
    same = compare(tmp_path / "a", tmp_path / "a")
    assert same.difference == same.low == same.high == 0.0 and same.p == 1.0
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(c)
    assert "[" in console.export_text()


def test_compare_leaves_broken_tasks_out_and_says_so(tmp_path: Path) -> None:
    run(Player(), tasks(4), k=2, out=tmp_path / "a")
    run(Player(breaks=lambda i, s: (i, s) == (2, 1)), tasks(4), k=2, out=tmp_path / "b")
    c = compare(tmp_path / "a", tmp_path / "b")
    assert (c.tasks, c.left_out, c.both) == (3, 1, 6) and "1 tasks LEFT OUT" in str(c)


def test_compare_refuses_different_panels(tmp_path: Path) -> None:
    run(Player(), tasks(3), out=tmp_path / "a", panel="greedy")
    run(Player(), tasks(5), out=tmp_path / "b", panel="t=1")
    with pytest.raises(DataError, match=r"2 tasks only in the second \(such as 'toy/test/t3'\); the protocol is 'greedy' and 't=1'"):
        compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DataError, match=r"no panel\.json"):
        compare(tmp_path / "a", tmp_path / "nowhere")


def test_the_mean_return_has_an_interval_over_tasks_and_says_whether_it_is_graded() -> None:
    panel = Panel(["a", "b", "c", "d"], 2)

    def row(task: str, sample: int, value: float) -> Row:
        base = {"task": task, "sample": sample, "task_type": "", "status": "terminated", "steps": 1, "invalid": 0, "error": None}
        return base | {"success": value == 1.0, "return": value}

    graded = summarise(panel, [row(t, s, v) for t, v in zip("abcd", (0.0, 0.25, 0.5, 1.0), strict=True) for s in (0, 1)], 1.0)
    assert graded.graded and graded.mean_return == pytest.approx(0.4375)
    # Four tasks, resampled: the standard deviation of the mean is sqrt(mean((x - 0.4375)²) / 4) = 0.185, so about ±1.96 times that.
    assert graded.return_low == pytest.approx(0.4375 - 1.96 * 0.185, abs=0.06) and graded.return_high == pytest.approx(
        0.4375 + 1.96 * 0.185, abs=0.06
    )
    plain = summarise(panel, [row(t, s, float(t in "ab")) for t in "abcd" for s in (0, 1)], 1.0)
    assert not plain.graded and Report.from_json(graded.to_json()) == graded
    same = summarise(panel, [row(t, s, 0.5) for t in "abcd" for s in (0, 1)], 1.0)
    assert same.return_low == same.return_high == 0.5
