"""`agentgym eval`: a checkpoint, an endpoint or a plain policy on the whole held-out split."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agentgym import registry
from agentgym.config import Config, Plugin
from agentgym.errors import ConfigError, PolicyError
from agentgym.evaluate import Report, evaluate, table
from agentgym.policy import Policy
from agentgym.renderer import Renderer
from agentgym.rollout import Gym
from agentgym.store import write_atomic

from . import setup
from .checkpoint import newest
from .model import end_ids, load_model


def evaluate_command(target: str, config: Config, *, k: int, split: str | None, n_tasks: int | None, out: Path | None, model: str | None) -> Report:
    """Evaluate `target` on the held-out split of `config`, print the table, and return the report."""
    if k < 1:
        raise ConfigError(f"--k is {k}; it is at least 1")
    split = split or config.splits.eval
    tasks = setup.tasks_of(config, split)
    policy, renderer, what = policy_of(target, config, model)
    e = config.eval
    gym = Gym(setup.make_env(config, split), concurrency=config.rollout.concurrency, timeout=config.rollout.step_timeout)
    panel = setup.Panel(tasks, gym, config.run.seed)
    chosen = panel.some(n_tasks)
    agent = setup.make_agent(config, policy, renderer, evaluating=True)
    how = f"T={e.temperature} top_p={e.top_p} top_k={e.top_k} max_tokens={config.rollout.max_tokens} seed={config.run.seed}"
    protocol = f"{config.context} {config.action} {how} {config.env}"
    console = Console()
    console.print(f"{what} on {split}: {len(chosen)} of {len(tasks)} tasks, {k} episode(s) each", highlight=False)

    async def work() -> Report:
        try:
            with progress_bar(console) as bar:
                job = bar.add_task("episodes", total=len(chosen) * k)
                return await evaluate(
                    panel.player(agent), chosen, k=k, concurrency=config.rollout.concurrency, out=out, panel=protocol,
                    progress=lambda done, total: bar.update(job, completed=done, total=total),
                )  # fmt: skip
        finally:
            gym.close()
            await policy.close()
            usage.update(account(policy, out))  # also of what was interrupted

    usage: dict[str, float] = {}
    report = asyncio.run(work())
    console.print(table(report))
    if usage:
        from .policy._usage import line

        report.usage = usage
        console.print(line(usage), highlight=False)
        if out:
            write_atomic(out / "results.json", report.to_json())
    if out:
        console.print(f"rows and results: {out}/episodes.jsonl, {out}/results.json", highlight=False)
    if report.errors == len(chosen) * k:
        raise PolicyError(f"every episode broke, so nothing was measured; the first: {report.error_reasons[0]}")
    return report


def account(policy: Policy, out: Path | None) -> dict[str, float]:
    """Return what the policy counted (`usage()`, where it has one), added to what earlier sessions left in out/usage.json."""
    counted: dict[str, float] = getattr(policy, "usage", dict)()
    if not counted or out is None:
        return counted
    path = out / "usage.json"
    before = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    total = {n: counted.get(n, 0.0) + before.get(n, 0.0) for n in (*counted, *(n for n in before if n not in counted))}
    write_atomic(path, json.dumps(total, indent=1) + "\n")
    return total


def policy_of(target: str, config: Config, model: str | None) -> tuple[Policy, Renderer | None, str]:
    """Return the policy that `target` means, the renderer that it needs, and its description."""
    if target.startswith(("http://", "https://")):
        if not model:
            raise ConfigError("an endpoint serves models by name: say which one with --model NAME")
        given = config.policy.options if config.policy.name == "openai" else {}
        return setup.make_policy(Plugin("openai", {**given, "base_url": target, "model": model}), None, None), None, f"{model} at {target}"
    if target in registry.names("policy") and not Path(target).exists():
        section = config.policy if config.policy.name == target else Plugin(target)
        if registry.needs_model(target):
            raise ConfigError(f"the policy {target!r} needs a model: give a checkpoint folder or a model's name instead")
        return setup.make_policy(section, None, None), None, f"policy {target}"
    folder = model_folder(target)
    options: dict[str, Any] = {k: v for k, v in config.model.options.items() if k in ("dtype",)}
    loaded, tokenizer = load_model(folder, device=config.run.device, **options)
    renderer = Renderer(tokenizer, stop_ids=end_ids(loaded))
    return setup.make_policy(config.policy, loaded, renderer), renderer, folder


def model_folder(target: str) -> str:
    """Return what load_model should load: a run folder's newest checkpoint, a checkpoint's model, or the name as it is."""
    path = Path(target)
    if (path / "config.json").is_file() and (path / "checkpoints").is_dir():
        found = newest(path / "checkpoints")
        if found is None:
            raise ConfigError(f"the run {path} has no checkpoint yet")
        path = found
    if (path / "shards").is_dir() and not (path / "model").is_dir():
        raise ConfigError(f"{path} holds shards of several devices; put them together first: agentgym export {path}")
    if any((path / "model" / f).is_file() for f in ("config.json", "adapter_config.json")):
        return str(path / "model")
    return target


def progress_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=not console.is_terminal)
