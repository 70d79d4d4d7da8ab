"""The clauses of the contract for what blocks and for tools: time-outs, hostile calls, episodes side by side in threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from .contract import Probe, Turn, difference, play
from .toolcall import Call, CallError, Spec
from .tools import Tool

CALL = "no_such_tool"


def tools(probe: Probe) -> Iterator[str]:
    """That every tool can be described to a model, and that what may wait is said to wait."""
    with closing(probe.make()) as env:
        box: dict[str, Tool] = getattr(env.unwrapped, "toolbox", {})
        for name, tool in box.items():
            spec = tool.spec
            if not spec.description.strip():
                yield f"the tool {name!r} has no docstring"
            try:
                json.dumps(spec.parameters)
            except (TypeError, ValueError) as e:
                yield f"the schema of the tool {name!r} is no JSON: {e}"
            if tool.timeout is not None and not env.unwrapped.blocking:  # type: ignore[attr-defined]
                yield f"blocking is False, but the tool {name!r} has a time-out of {tool.timeout:g} s: while it waits, every episode does"


def hostile_calls(probe: Probe) -> Iterator[str]:
    """That a wrong call is feedback: the episode goes on."""
    with closing(probe.make()) as env:
        inner: Any = env.unwrapped
        if not hasattr(inner, "toolbox"):
            return
        calls = {"an unknown tool": Call(CALL, {"text": "x"})}
        for spec in inner.specs:
            calls[f"{spec.name} with an unknown argument"] = Call(spec.name, {**_arguments(spec), "no_such_argument": "x"})
            if spec.parameters.get("required"):
                calls[f"{spec.name} without arguments"] = Call(spec.name, {})
        for what, call in calls.items():
            env.reset(seed=probe.seed, options={"task": probe.tasks[0]})
            try:
                action = inner._form.render([call])
                said = inner._form.parse(action, inner.specs)[0].arguments == call.arguments
            except (ValueError, CallError) as e:
                said = isinstance(e, CallError)
            if not said:
                continue  # in this format it cannot even be said
            try:
                observation, _, terminated, _, info = env.step(action)
            except Exception as e:
                yield f"{what} raises {type(e).__name__}: {e!s:.200}"
                continue
            if terminated or info.get("valid") is not False or not str(observation).strip():
                yield f"{what} gives terminated={terminated}, valid={info.get('valid')!r}, {observation!r:.60}; expected feedback and valid=False"


def _arguments(spec: Spec) -> dict[str, Any]:
    return {name: "1" for name in spec.parameters.get("required", [])}


def side_by_side(probe: Probe) -> Iterator[str]:
    """That episodes of a blocking environment, which run in threads, do not disturb each other."""
    with closing(probe.make()) as env:
        if not getattr(env.unwrapped, "blocking", False):
            return
    jobs = [(task, seed, i % 2 == 0) for i, (task, seed) in enumerate(probe.some_tasks() * 2)]
    together: dict[int, list[Turn] | Exception] = {}

    def work(number: int) -> None:
        task, seed, expert = jobs[number]
        try:
            with closing(probe.make()) as env:
                together[number] = list(play(env, task, seed, expert=expert))
        except Exception as e:
            together[number] = e

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (task, seed, expert) in enumerate(jobs):
        found = together[number]
        if isinstance(found, Exception):
            yield f"task {task!r} raises {type(found).__name__} beside others: {found!s:.200}"
            return
        with closing(probe.make()) as env:
            alone = list(play(env, task, seed, expert=expert))
        differs = next(filter(None, map(difference, alone, found)), "") or "length" * (len(alone) != len(found))
        if differs:
            yield f"task {task!r} goes another way beside others: {differs}"
            return
