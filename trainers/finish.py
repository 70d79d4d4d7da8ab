"""The end of a run: summary.json, the learning curve, and a few episodes to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentgym import store
from agentgym.plot import HELD_OUT, TRAINING, learning_curve

from .checkpoint import write_json

if TYPE_CHECKING:
    from .session import Session


def finish(s: Session) -> dict[str, Any]:
    """Write what a finished run leaves behind and return its summary; of several processes, one writes."""
    summary = {
        "eval": s.state.evals,
        "wall_s": round(s.elapsed(), 1),
        "updates": s.state.version,
        "seeds": {"run": s.config.run.seed},
        "model_parameters": sum(p.numel() for p in s.model.parameters()),
        "checkpoints": {n: str(p) if p else None for n, p in (("final", s.checkpoints.latest()), ("best", s.checkpoints.best()))},
    }
    if not s.ranks.first:
        return summary
    title = f"{s.config.env.name}: held-out success ({len(s.panel.tasks)} tasks, 95 % intervals)"
    rows = list(store.read_lines(s.dir / "metrics.jsonl")) if (s.dir / "metrics.jsonl").exists() else []
    if any(r.get(m) is not None for r in rows for m in (HELD_OUT, TRAINING)):  # not when every episode broke
        summary["plot"] = str(learning_curve(rows, s.dir / "learning_curve.png", title=title))
    s.loggers.text(episodes(s))
    write_json(s.dir / "summary.json", summary)
    s.loggers.text(closing(s, summary))
    return summary


def episodes(s: Session) -> str:
    """Return (and write to episodes.md) a few held-out episodes of the final weights: successes and failures, as they come."""
    played = list(store.read(s.dir / "eval" / "final.jsonl.gz"))
    n = min(s.config.eval.show, len(played))
    chosen = [played[i * len(played) // n] for i in range(n)]
    text = "\n\n".join(store.episode_text(t) for t in chosen)
    (s.dir / "episodes.md").write_text(text + "\n", "utf-8")
    return text


def closing(s: Session, summary: dict[str, Any]) -> str:
    """Return the last lines of a run: what it was before, after each stage, and where everything is."""
    lines = [f"{name:>8}: held-out success {_percent(e)}" for name, e in s.state.evals.items() if "-" not in name]
    lines.append(f"{summary['updates']} updates in {summary['wall_s'] / 60:.1f} min. Everything is in {s.dir}: summary.json, metrics.jsonl,")
    lines.append("learning_curve.png, episodes.md, trajectories/, checkpoints/ (Hugging Face format in each one's model/)")
    return "\n".join(lines)


def _percent(e: dict[str, Any]) -> str:
    if e["success"] is None:
        return "unknown: no episode could be scored"
    score = f", mean return {e['mean_return']:.3f} ({e['return_low']:.3f} to {e['return_high']:.3f})" if e.get("graded") else ""
    return f"{e['success']:.1%}  (95 % interval {e['low']:.1%} to {e['high']:.1%}, n = {e['n']}){score}"
