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
    # An evaluation has the stage and the step of the update before it, and is told from it by having no clock.
    for row in {(r["stage"], r["step"], r.get("wall_s") is None): r for r in metrics}.values():
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


def compare_curves(
    runs: Mapping[str, Sequence[Rows]], out: Path, *, title: str = "", metric: str = HELD_OUT, training: str = TRAINING, reference: str = ""
) -> Path:
    """Draw several methods, a panel each, over several seeds: the mean as a line, its 95 % interval over the seeds as a band; return `out`.

    runs       method → one list of metric rows per seed
    metric     compared at the updates where every seed of the method has it; `training` is drawn, smoothed, where no run has `metric`
    reference  the method that is drawn in grey in every other panel; the first one when none is named

    Raises DataError when a method has nothing to draw.
    """
    smooth = not any(series(rows, metric).value for seeds in runs.values() for rows in seeds)
    curves = {method: _curve(method, seeds, training if smooth else metric, smooth) for method, seeds in runs.items()}
    reference = reference or next(iter(curves))
    figure, axes = _figure(title, panels=len(curves), columns=min(5, len(curves)))
    for i, (axis, (method, curve)) in enumerate(zip(axes, curves.items(), strict=False)):
        if method != reference:
            axis.plot(curves[reference][0], curves[reference][1], color=GREY, lw=1.4, ls=(0, (4, 2)), label=f"{reference} (mean)" if i < 2 else None)
        x, mean, half = curve
        color = COLORS[0] if method != reference else GREY
        axis.plot(x, mean, color=color, lw=2.2, marker="" if smooth else "o", ms=4)
        axis.fill_between(
            x, [m - h for m, h in zip(mean, half, strict=True)], [m + h for m, h in zip(mean, half, strict=True)], color=color, alpha=0.18, lw=0
        )
        axis.annotate(f"{mean[-1]:.0%}", (x[-1], mean[-1]), xytext=(-4, 7), textcoords="offset points", color=color, fontsize=9, ha="right")
        axis.set_title(f"{method} ({len(runs[method])} seed{'s' * (len(runs[method]) > 1)})", fontsize=10, loc="left")
        axis.set_xlabel("updates", fontsize=8)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    figure.supylabel("success in training (running mean)" if smooth else "held-out success", fontsize=9)
    _legend(figure, axes[min(1, len(curves) - 1)], note="line: mean over seeds, band: its 95 % interval")
    return _save(figure, out)


def _curve(method: str, seeds: Sequence[Rows], name: str, smooth: bool) -> tuple[list[float], list[float], list[float]]:
    """Return updates, mean over the seeds, and half of its 95 % interval (0 for a single seed)."""
    tracks = [_track(rows, name, smooth) for rows in seeds]
    x = sorted(set.intersection(*map(set, tracks))) if tracks else []
    if not x:
        raise DataError(f"compare_curves: the {len(tracks)} runs of {method!r} have no update in common where {name!r} was measured")
    found = [mean_interval([t[u] for t in tracks]) for u in x]
    return x, [m for m, _ in found], [0.0 if math.isnan(h) else h for _, h in found]


# Student's t at 97.5 % for 1, 2, … degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over runs, and half of its 95 % interval by Student's t (nan for one run)."""
    n, mean = len(values), sum(values) / len(values)
    if n < 2:
        return mean, math.nan
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, (_T[n - 2] if n - 2 < len(_T) else 1.96) * deviation / math.sqrt(n)


def _track(rows: Rows, name: str, smooth: bool) -> dict[float, float]:
    found = series(rows, name)
    return dict(zip(found.update, _smooth(found.value) if smooth else found.value, strict=True))


def _figure(title: str, *, panels: int, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with at least `panels` axes, `columns` side by side.

    It belongs to no window and to no global state of matplotlib, so threads and servers may draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    columns, rows = min(columns, panels), -(-panels // columns)
    width, height = (5.4, 4.2) if rows == 1 and columns <= 2 else (2.6, 2.4)
    figure = Figure(figsize=(width * columns + 0.8, height * rows + (0.9 if rows > 1 or columns > 2 else 0)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axis in axes:
        axis.set_ylim(-0.02, 1.04)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axis.grid(axis="y", color=PALE, lw=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(length=0, colors=GREY)
        axis.margins(x=0.04)
        axis.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
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
        low = points.value[i] < 0.06  # below it would lie on the axis and its numbers
        text = axis.annotate(
            f"{stage} {points.value[i]:.0%}", (x[i], points.value[i]), xytext=(-9 if left else 7, 4 if low else -3), textcoords="offset points",
            fontsize=9, fontweight="bold", color=COLORS[0], va="bottom" if low else "top" if i else "center", ha="right" if left else "left",
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
