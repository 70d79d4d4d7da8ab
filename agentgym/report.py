"""What the episodes of a panel say: success rates with intervals, pass@k, tables. The episodes themselves are played in evaluate.py."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DataError, TaskError
from .types import Status, Task

if TYPE_CHECKING:
    from rich.table import Table

Z95 = 1.959963984540054
_RESAMPLES = 2_000
Row = dict[str, Any]  # one line of episodes.jsonl, made by `evaluate`


# ------------------------------------------------------------------------------------------------------------- estimators


def wilson(successes: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n). (0, 1) when `n` is 0."""
    if n <= 0:
        return 0.0, 1.0
    p = successes / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    # At p = 0 and p = 1 the bound is p itself; rounding must not move it.
    return (0.0 if successes <= 0 else low), (1.0 if successes >= n else high)


def effective_n(counts: Sequence[tuple[int, int]]) -> float:
    """Return how many independent episodes tell as much as these, from (successes, episodes) per task.

    Samples of one task resemble each other. v = m/(m−1) Σ(c_i − p n_i)² / n² is the variance of p with tasks as clusters (Taylor
    linearisation of the ratio), and n_eff = p(1−p)/v (Korn & Graubard 1998), at most n. Where every episode went the same way, v says
    nothing, and n_eff is the number of tasks.
    """
    m, n, c = len(counts), sum(n for _, n in counts), sum(c for c, _ in counts)
    if not n:
        return 0.0
    p = c / n
    if m == 1 or c in (0, n):
        return float(m)
    variance = m / (m - 1) * sum((c_i - p * n_i) ** 2 for c_i, n_i in counts) / n**2
    return float(n) if variance == 0 else min(float(n), p * (1 - p) / variance)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias the chance that one of k samples succeeds, from c successes in n: 1 − C(n−c, k) / C(n, k).

    arXiv 2107.03374. Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass_at_k(n={n}, c={c}, k={k}): needs 1 <= k <= n and 0 <= c <= n")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


# ------------------------------------------------------------------------------------------------------- panel and report


@dataclass(frozen=True)
class Panel:
    """What was asked: the tasks, how often each, and under which protocol. Numbers of different panels are not comparable."""

    tasks: list[str]
    k: int
    protocol: str = ""

    @classmethod
    def of(cls, tasks: Iterable[Task], k: int, protocol: str) -> Panel:
        """Return the panel of these tasks; their order does not matter. Raises TaskError on none, or on one that is there twice."""
        ids = Counter(key(t) for t in tasks)
        double = next((i for i, times in ids.items() if times > 1), None)
        if not ids or double or k < 1:
            what = f"task {double!r} is there twice (to sample it more often, raise k)" if double else f"{len(ids)} tasks, k={k}"
            raise TaskError(f"evaluate: {what}; needs at least one task, each once, and k >= 1")
        return cls(sorted(ids), k, protocol)

    @property
    def hash(self) -> str:
        """The first 16 hex digits of the SHA-256 of the sorted task ids, k and the protocol."""
        return hashlib.sha256(json.dumps([self.tasks, self.k, self.protocol]).encode()).hexdigest()[:16]

    def differs(self, other: Panel) -> str:
        """Say what differs from `other`, '' when nothing does."""
        mine, others = set(self.tasks), set(other.tasks)
        only = [f"{len(s)} tasks only in the {w} (such as {min(s)!r})" for s, w in ((mine - others, "first"), (others - mine, "second")) if s]
        k = [f"k is {self.k} and {other.k}"] if self.k != other.k else []
        protocol = [f"the protocol is {self.protocol!r} and {other.protocol!r}"] if self.protocol != other.protocol else []
        return "; ".join(only + k + protocol)


def key(task: Task) -> str:
    """Return what identifies a task in a panel."""
    return f"{task.env}/{task.split}/{task.id}"


@dataclass
class Share:
    """A success rate over `n` episodes and its 95 % interval."""

    n: int
    success: float
    low: float
    high: float


@dataclass
class Report:
    """What an evaluation found. Broken episodes are in `errors` and in nothing else.

    n, success, low, high  scored episodes, share of successes over all of them (the micro-average), 95 % interval
    interval               how the intervals were made
    pass_at_k              k → chance that one of k samples succeeds, mean over the tasks with k scored samples
    mean_return            mean of the outcome (return without penalties); return_low, return_high: its 95 % interval, by bootstrap over the tasks
    graded                 whether the outcome says more than success does: two successes, or two failures, differ
    mean_steps, truncated  mean number of steps; number of truncated episodes
    invalid_share          actions that the environment refused, of all actions
    types                  task type → its own rate, where tasks have types
    causes                 why episodes did not succeed → how many, where the environment says so (info["keep"]["cause"])
    seconds                wall time, over all sessions of a resumed evaluation
    usage                  what an endpoint was asked for and what it cost, over all sessions, where it is counted (tokens, retries, cost)
    """

    n: int
    success: float
    low: float
    high: float
    interval: str
    k: int
    tasks: int
    pass_at_k: dict[int, float]
    mean_return: float
    mean_steps: float
    invalid_share: float
    truncated: int
    errors: int
    panel: str
    protocol: str = ""
    error_reasons: list[str] = field(default_factory=list)
    types: dict[str, Share] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    return_low: float = math.nan
    return_high: float = math.nan
    graded: bool = False
    usage: dict[str, float] = field(default_factory=dict)

    @property
    def macro(self) -> float:
        """Return the mean of the types' rates, each type alike (the macro-average; for question answering, over the data sets)."""
        return _mean(share.success for share in self.types.values())

    def to_json(self) -> str:
        """Return the report as JSON; a number that does not exist (no episode was scored) is null."""
        return json.dumps(_null(asdict(self)), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that `to_json` wrote. Raises DataError on anything else."""
        try:
            row: dict[str, Any] = {k: math.nan if v is None else v for k, v in json.loads(text).items()}
            unknown = set(row) - {f.name for f in fields(cls)}
            if unknown:
                raise DataError(f"not a report: it has no field {sorted(unknown)[0]!r}; was it written by another version of agentgym?")
            row["pass_at_k"] = {int(k): v for k, v in row["pass_at_k"].items()}
            # A type without a scored episode is not in the table, so its numbers are never null.
            row["types"] = {name: Share(**share) for name, share in row["types"].items()}
            return cls(**row)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise DataError(f"not a report ({type(e).__name__}: {e})") from e

    def summary(self) -> dict[str, float | None]:
        """Return the numbers alone, flat, fit for JSON (one that does not exist is None)."""
        names = [
            "n",
            "success",
            "low",
            "high",
            "mean_return",
            "return_low",
            "return_high",
            "graded",
            "mean_steps",
            "invalid_share",
            "truncated",
            "errors",
            "seconds",
        ]
        numbers = {name: getattr(self, name) for name in names} | {f"pass@{k}": v for k, v in self.pass_at_k.items()}
        if len(self.types) > 1:
            numbers |= {"macro": self.macro, **{f"success/{name}": share.success for name, share in self.types.items()}}
        return _null(numbers)

    def line(self) -> str:
        """Return the report in one line: the rate, how sure it is, and what broke."""
        broke = f", {self.errors} episodes BROKE (first: {self.error_reasons[0]:.200})" if self.errors else ""
        if not self.n:
            return f"no episode was scored{broke}"
        at_k = f", pass@{self.k} {self.pass_at_k[self.k]:.1%}" if self.k > 1 and self.k in self.pass_at_k else ""
        return (
            f"{self.success:.1%} [{self.low:.1%}, {self.high:.1%}] of {self.n} episodes{at_k}, {self.mean_steps:.1f} steps, "
            f"{self.invalid_share:.1%} invalid, {self.seconds:.1f} s{broke}"
        )


def _null(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _null(v) for k, v in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def summarise(panel: Panel, rows: Sequence[Row], seconds: float) -> Report:
    """Return the report of the rows of a panel."""
    scored = [r for r in rows if r["status"] != Status.ERROR]
    broken = [r for r in rows if r["status"] == Status.ERROR]
    by_task, by_type = _by(scored, "task"), _by(scored, "task_type")
    total = _share(scored, panel.k)
    counts = [(sum(r["success"] for r in rs), len(rs)) for rs in by_task.values()]
    at_k = {k: [pass_at_k(n, c, k) for c, n in counts if n >= k] for k in range(1, panel.k + 1)}
    steps = sum(r["steps"] for r in scored)
    reasons = Counter(r["error"] for r in broken)
    return Report(
        **asdict(total),
        interval="Wilson" if panel.k == 1 else f"Wilson, clustered by task (effective n = {effective_n(counts):.1f})",
        k=panel.k,
        tasks=len(panel.tasks),
        pass_at_k={k: sum(v) / len(v) for k, v in at_k.items() if v},
        mean_return=_mean(r["return"] for r in scored),
        mean_steps=_mean(r["steps"] for r in scored),
        invalid_share=sum(r["invalid"] for r in scored) / steps if steps else math.nan,
        truncated=sum(r["status"] == Status.TRUNCATED for r in scored),
        errors=len(broken),
        panel=panel.hash,
        protocol=panel.protocol,
        error_reasons=[f"{times} × {why}" for why, times in reasons.most_common(5)],
        types={name: _share(rs, panel.k) for name, rs in sorted(by_type.items()) if name},
        causes=dict(Counter(str(r["cause"]) for r in scored if r.get("cause")).most_common()),
        seconds=seconds,
        **_returns(by_task.values()),
    )


def _returns(by_task: Iterable[Sequence[Row]]) -> dict[str, Any]:
    """Return the interval of the mean return (tasks are resampled, each with all its samples), and whether returns say more than success."""
    every = [[(r["success"], r["return"]) for r in rows] for rows in by_task]
    if not every:
        return {}
    sums, sizes = np.array([sum(v for _, v in rows) for rows in every]), np.array([len(rows) for rows in every])
    rng = np.random.default_rng(0)
    resamples = (rng.integers(len(every), size=len(every)) for _ in range(_RESAMPLES))
    low, high = np.quantile([sums[r].sum() / sizes[r].sum() for r in resamples], [0.025, 0.975])
    distinct = {pair for rows in every for pair in rows}
    return {"return_low": float(low), "return_high": float(high), "graded": len(distinct) > len({won for won, _ in distinct})}


def _share(rows: Sequence[Row], k: int) -> Share:
    n, c = len(rows), sum(r["success"] for r in rows)
    # Samples of one task are not independent: with k > 1 the interval takes the effective n.
    counts = [(sum(r["success"] for r in rs), len(rs)) for rs in _by(rows, "task").values()]
    sure = n if k == 1 else effective_n(counts)
    rate = c / n if n else math.nan
    return Share(n, rate, *wilson(rate * sure if n else 0.0, sure))


def _by(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = defaultdict(list)
    for r in rows:
        out[r[name]].append(r)
    return out


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every) if every else math.nan


# --------------------------------------------------------------------------------------------------------------- terminal


def table(report: Report) -> Table:
    """Return the report as a table for the terminal: one row per task type, both averages last; broken episodes in red."""
    from rich.markup import escape
    from rich.table import Table

    out = Table(title=f"{report.tasks} tasks × {report.k}, panel {report.panel}", title_justify="left", caption_justify="left")
    for name in ("task type", "n", "success", "95 % interval"):
        out.add_column(name, justify="left" if name == "task type" else "right")
    for name, share in report.types.items():
        out.add_row(escape(name), *_cells(share))
    out.add_section()
    if len(report.types) > 1:
        out.add_row("mean of the types (macro-average)", "", f"{report.macro:.1%}", "")
    out.add_row("all (micro-average)", *_cells(Share(report.n, report.success, report.low, report.high)), style="bold")
    at_k = "".join(f"pass@{k} {v:.1%} · " for k, v in report.pass_at_k.items() if k > 1)
    sure = "" if math.isnan(report.return_low) else f" [{report.return_low:.3f}, {report.return_high:.3f}]"
    out.caption = (
        f"{at_k}return {report.mean_return:.3f}{sure} · {report.mean_steps:.1f} steps · {report.invalid_share:.1%} invalid · "
        f"{report.truncated} truncated · {report.seconds:.1f} s · intervals: {report.interval}"
    )
    if report.causes:
        out.caption += "\nnot solved, by cause: " + escape(", ".join(f"{name} {n}" for name, n in report.causes.items()))
    if report.errors:
        reasons = "\n".join(escape(f"  {r:.300}") for r in report.error_reasons)
        out.caption += f"\n[bold red]{report.errors} episodes BROKE and are in no number above:[/]\n[red]{reasons}[/]"
    return out


def _cells(share: Share) -> tuple[str, str, str]:
    rate = "–" if math.isnan(share.success) else f"{share.success:.1%}"
    return str(share.n), rate, f"{share.low:.1%} – {share.high:.1%}"
