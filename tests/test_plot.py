"""Pictures: what is drawn where, and that they are pictures."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.errors import DataError
from agentgym.plot import compare_curves, learning_curve, mean_interval, series


def run(gain: float = 0.0) -> list[dict]:
    return [
        {"stage": "before", "step": 0, "eval/success": 0.1, "eval/low": 0.05, "eval/high": 0.2},
        *({"stage": "warm", "step": i, "wall_s": 6.0 * i, "loss": 1.0} for i in range(1, 11)),
        {"stage": "warm", "step": 10, "eval/success": 0.3, "eval/low": 0.2, "eval/high": 0.4},
        *({"stage": "rl", "step": i, "wall_s": 6.0 * i, "rollout/success": i / 40 + gain} for i in range(11, 31)),
        {"stage": "final", "step": 30, "eval/success": 0.7 + gain, "eval/low": 0.6 + gain, "eval/high": 0.8 + gain},
    ]


def is_png(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000


def test_series_by_hand() -> None:
    found = series(run(), "eval/success")
    assert found.update == [0, 10, 30] and found.value == [0.1, 0.3, 0.7]
    assert found.minutes == [0.0, 1.0, 3.0]  # the clock of the last update before
    assert (found.low[0], found.high[0], found.stage) == (0.05, 0.2, ["before", "warm", "final"])
    again = [
        *run(),
        {"stage": "final", "step": 30, "eval/success": 0.9},
        {"stage": "rl", "step": 31, "rollout/success": None},
    ]
    assert series(again, "eval/success").value == [0.1, 0.3, 0.9]  # logged again after a resume: the last counts
    assert series(again, "rollout/success").update == list(range(11, 31))


def test_learning_curve(tmp_path: Path) -> None:
    assert is_png(learning_curve(run(), tmp_path / "deep" / "curve.png", title="toy"))
    no_clock = [{k: v for k, v in r.items() if k != "wall_s"} for r in run()]
    assert is_png(learning_curve(no_clock, tmp_path / "updates.png", title=""))
    only_before = [r for r in run() if r["stage"] == "before"]
    assert is_png(learning_curve(only_before, tmp_path / "one.png", title="a run that was stopped at once"))
    only_rollouts = [r for r in run() if "eval/success" not in r]
    assert is_png(learning_curve(only_rollouts, tmp_path / "rollouts.png", title="no evaluation"))
    with pytest.raises(DataError, match="'eval/success'"):
        learning_curve([{"stage": "warm", "step": 1, "loss": 1.0}], tmp_path / "none.png", title="")


def test_compare_curves(tmp_path: Path) -> None:
    runs = {"gigpo": [run(0.1), run(0.05)], "grpo": [run(), run(-0.05)]}
    assert is_png(compare_curves(runs, tmp_path / "held_out.png", title="two methods"))
    training = {m: [[r for r in rows if "eval/success" not in r] for rows in seeds] for m, seeds in runs.items()}
    assert is_png(compare_curves(training, tmp_path / "training.png"))
    many = {f"method {i}": [run(0.02 * i), run(0.02 * i - 0.1), run()] for i in range(7)}  # two rows of panels
    assert is_png(compare_curves(many, tmp_path / "many.png", title="seven methods", reference="method 3"))
    for empty in ([], [[]]):
        with pytest.raises(DataError, match="'grpo'"):
            compare_curves({"gigpo": [run()], "grpo": empty}, tmp_path / "none.png")


def test_the_interval_over_runs() -> None:
    mean, half = mean_interval([0.4, 0.5, 0.6])
    assert mean == pytest.approx(0.5) and half == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert math.isnan(mean_interval([0.4])[1])
    assert mean_interval([0.1] * 30) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-12))


def test_importing_it_imports_no_matplotlib_and_the_core_no_torch() -> None:
    modules = ["plot", "evaluate", "report", "store", "logger", "check", "contract"]
    heavy = ["matplotlib", "torch", "tensorboard", "agentgym.envs"]
    code = f"import sys\nfor m in {modules}: __import__('agentgym.' + m)\nprint([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_labels_of_a_stage_that_ends_late_do_not_meet() -> None:
    from matplotlib.text import Annotation

    from agentgym.plot import _figure, _held_out

    figure, (axis,) = _figure("", panels=1)
    rows = [
        {"stage": "before", "step": 0, "eval/success": 0.0, "eval/low": 0.0, "eval/high": 0.01},
        {"stage": "warm", "step": 160, "eval/success": 0.62, "eval/low": 0.58, "eval/high": 0.67},
        {"stage": "final", "step": 184, "eval/success": 0.65, "eval/low": 0.6, "eval/high": 0.69},
    ]
    points = series(rows, "eval/success")
    _held_out(axis, points.update, points)
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in axis.texts if isinstance(t, Annotation)]
    assert len(boxes) == 3 and not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_label_at_nought_lies_above_the_axis() -> None:
    from agentgym.plot import _figure, _held_out

    figure, (axis,) = _figure("", panels=1)
    rows = [{"stage": s, "step": i, "eval/success": 0.0, "eval/low": 0.0, "eval/high": 0.5} for i, s in enumerate(("before", "warm", "final"))]
    points = series(rows, "eval/success")
    _held_out(axis, points.update, points)
    figure.canvas.draw()
    assert all(t.get_window_extent().y0 > axis.get_window_extent().y0 for t in axis.texts) and len(axis.texts) == 3
