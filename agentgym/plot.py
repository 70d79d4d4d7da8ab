"""Learning curves as PNG files, from the rows of metrics.jsonl: what held-out success was, when, and how sure that is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HELD_OUT, TRAINING = "eval/success", "rollout/success"
COLORS = (
    "#1f5fa8",
    "#d1602a",
    "#2e8b57",
    "#8e4a9e",
    "#7a6a2f",
    "#4a7f8c",
)  # told apart also in grey and by the colour-blind
GREY, PALE = "#6b7280", "#e5e7eb"
Rows = Sequence[Mapping[str, Any]]


@dataclass
class Series:
    """One metric of one run: where it was measured (update, minutes), its value, its 95 % interval where it has one, its stage."""

    update: list[float] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    stage: list[str] = field(default_factory=list)


def series(metrics: Rows, name: str) -> Series:
    """Return the rows that have `name`, in order. Evaluations have no clock of their own and take that of the last update before them.

    `eval/success` has its interval in `eval/low` and `eval/high`. A row that a resumed run logged again counts once, the last time.
    """
    out, minutes, prefix = Series(), 0.0, name.rpartition("/")[0]
    for row in {(r["stage"], r["step"]): r for r in metrics}.values():
        minutes = row["wall_s"] / 60 if row.get("wall_s") is not None else minutes
        value = row.get(name)
        if value is None or not math.isfinite(value):
            continue
        out.update.append(row["step"])
        out.minutes.append(minutes)
        out.value.append(value)
        out.low.append(row.get(f"{prefix}/low", value))
        out.high.append(row.get(f"{prefix}/high", value))
        out.stage.append(row["stage"])
    return out


def learning_curve(metrics: Rows, out: Path, *, title: str, held_out: str = HELD_OUT, training: str = TRAINING) -> Path:
    """Draw held-out success with its 95 % intervals and success in training, over updates and over minutes; return `out`.

    metrics  rows of metrics.jsonl: `step`, `stage`, `wall_s` and the two metrics where they were measured

    Raises DataError when no row has either metric.
    """
    points, rollouts = series(metrics, held_out), series(metrics, training)
    if not points.value and not rollouts.value:
        raise DataError(f"learning_curve: no row of {len(metrics)} has {held_out!r} or {training!r}; is this the metrics.jsonl of a run?")
    clock = any(points.minutes) or any(rollouts.minutes)
    figure, axes = _figure(title, panels=2 if clock else 1)
    for axis, unit in zip(axes, ("update", "minutes"), strict=False):
        _stages(axis, metrics, unit)
        x, y = getattr(rollouts, unit), rollouts.value
        if y:
            axis.plot(x, y, color=GREY, alpha=0.3, lw=0.8)
            axis.plot(x, _smooth(y), color=GREY, lw=1.6, label="training rollouts (running mean)")
        _held_out(axis, getattr(points, unit), points)
        axis.set_xlabel({"update": "updates", "minutes": "minutes"}[unit])
    axes[0].set_ylabel("success")
    _legend(figure, axes[0])
    return _save(figure, out)


def compare_curves(runs: Mapping[str, Sequence[Rows]], out: Path, *, title: str = "", metric: str = HELD_OUT, training: str = TRAINING) -> Path:
    """Draw several methods, each over several seeds: the mean as a line, the range over the seeds as a band; return `out`.

    runs    method → one list of metric rows per seed
    metric  compared at the updates where every seed of the method has it; `training` is drawn, smoothed, where no run has `metric`

    Raises DataError when a method has nothing to draw.
    """
    smooth = not any(series(rows, metric).value for seeds in runs.values() for rows in seeds)
    name = training if smooth else metric
    figure, (axis,) = _figure(title, panels=1)
    for color, (method, seeds) in zip(COLORS * (1 + len(runs) // len(COLORS)), runs.items(), strict=False):
        tracks = [_track(rows, name, smooth) for rows in seeds]
        x = sorted(set.intersection(*map(set, tracks))) if tracks else []
        if not x:
            raise DataError(f"compare_curves: the {len(tracks)} runs of {method!r} have no update in common where {name!r} was measured")
        columns = [[t[u] for t in tracks] for u in x]
        mean = [sum(c) / len(c) for c in columns]
        label = f"{method} ({len(tracks)} seed{'s' * (len(tracks) > 1)})"
        axis.plot(x, mean, color=color, lw=2.2, marker="" if smooth else "o", ms=5, label=label)
        axis.fill_between(x, list(map(min, columns)), list(map(max, columns)), color=color, alpha=0.16, lw=0)
        axis.annotate(f"{mean[-1]:.0%}", (x[-1], mean[-1]), xytext=(7, -3), textcoords="offset points", color=color, fontsize=9)
    axis.set_xlabel("updates")
    axis.set_ylabel("success in training (running mean)" if smooth else "held-out success")
    _legend(figure, axis, note="line: mean, band: range over seeds")
    return _save(figure, out)


def _track(rows: Rows, name: str, smooth: bool) -> dict[float, float]:
    found = series(rows, name)
    return dict(zip(found.update, _smooth(found.value) if smooth else found.value, strict=True))


def _figure(title: str, *, panels: int) -> tuple[Figure, list[Axes]]:
    """Return an empty figure. It belongs to no window and to no global state of matplotlib, so threads and servers may draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(5.4 * panels + 0.8, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    for axis in axes:
        axis.set_ylim(-0.02, 1.04)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axis.grid(axis="y", color=PALE, lw=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(length=0, colors=GREY)
        axis.margins(x=0.04)
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure, axes


def _stages(axis: Axes, metrics: Rows, unit: str) -> None:
    """Mark where each training stage begins. Evaluations, which have stages of their own, are told by having no `wall_s`."""
    last, begins = "", list[tuple[str, float]]()
    before = 0.0
    for row in metrics:
        if row.get("wall_s") is None:
            continue
        if row["stage"] != last:
            begins.append((row["stage"], before))
            last = row["stage"]
        before = row["step"] if unit == "update" else row["wall_s"] / 60
    if len(begins) < 2:
        return
    ends = [x for _, x in begins[1:]] + [before]
    for (stage, x), end in zip(begins, ends, strict=True):
        if x:
            axis.axvline(x, color=GREY, lw=0.8, ls=(0, (2, 3)))
        if end - x > 0.012 * len(stage) * before:  # or the name would run into the next one
            at: dict[str, Any] = {
                "xycoords": ("data", "axes fraction"),
                "xytext": (2, 3),
                "textcoords": "offset points",
            }
            axis.annotate(stage, (x, 1.0), color=GREY, fontsize=8, va="bottom", **at)


def _held_out(axis: Axes, x: list[float], points: Series) -> None:
    from matplotlib.patheffects import withStroke

    if not x:
        return
    below = [v - low for v, low in zip(points.value, points.low, strict=True)]
    above = [high - v for v, high in zip(points.value, points.high, strict=True)]
    axis.errorbar(
        x,
        points.value,
        yerr=[below, above],
        color=COLORS[0],
        marker="o",
        ms=5,
        lw=2,
        elinewidth=1.1,
        capsize=2.5,
        label="held-out, 95 % interval",
    )
    for i, stage in enumerate(points.stage):
        if re.fullmatch(r".*-\d+", stage):  # one during a stage, such as rl-20; the others are results, and said in numbers
            continue
        # A stage that ends late has the final label close to its right: its own goes to the left.
        left = i < len(x) - 1 and x[i] > 0.6 * x[-1]
        text = axis.annotate(
            f"{stage} {points.value[i]:.0%}", (x[i], points.value[i]), xytext=(-9 if left else 7, -3), textcoords="offset points",
            fontsize=9, fontweight="bold", color=COLORS[0], va="top" if i else "center", ha="right" if left else "left",
        )  # fmt: skip
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _smooth(values: Sequence[float], half: int = 3) -> list[float]:
    """Return the running mean over up to `half` neighbours on either side."""
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(w) / len(w) for w in windows]


def _legend(figure: Figure, axis: Axes, note: str = "") -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=max(1, len(labels)),
        frameon=False,
        fontsize=9,
        title=note or None,
        alignment="left",
    )


def _save(figure: Figure, out: Path) -> Path:
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, facecolor="white")
    return out
