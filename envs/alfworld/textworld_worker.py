"""The process in which the real engine runs: `python -m agentgym.envs.alfworld.textworld_worker FD DIALECT [--caches]`.

The packages of the extra `alfworld` are imported here and nowhere else. The two caches that make the engine bearable
are put around its own functions; its code stays as it is.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import sys
from collections.abc import Callable
from importlib.resources import files
from multiprocessing.connection import Connection
from typing import Any


class RealGame:
    """One real engine: loads game after game, each in the dialect asked for."""

    def __init__(self, dialect: str, caches: bool) -> None:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.core import EnvInfos
        from textworld.envs.pddl import PddlEnv

        if caches:
            remember_parsing()
            remember_translation()
        self.dialect = dialect
        self.caches = caches
        self.engine = PddlEnv(EnvInfos(admissible_commands=True, won=True, feedback=True))
        self.env = AlfredDemangler(self.engine, shuffle=False)

    def load(self, text: str) -> tuple[str, list[str], bool]:
        """Load the text of a game file and start it."""
        self.env.load(in_dialect(json.loads(text), self.dialect))
        if self.caches:
            remember_commands(self.engine)
        return self.reset("")

    def reset(self, _: str) -> tuple[str, list[str], bool]:
        """Start the game again."""
        return self._answer(self.env.reset())

    def step(self, command: str) -> tuple[str, list[str], bool]:
        """Carry out a command."""
        state, _, _ = self.env.step(command)
        return self._answer(state)

    @staticmethod
    def _answer(state: Any) -> tuple[str, list[str], bool]:
        return state.feedback, list(state["admissible_commands"]), bool(state["won"])


def in_dialect(data: dict[str, Any], dialect: str) -> dict[str, Any]:
    """Return the game with the rules of a dialect. `move`: those packaged with alfworld; `put`: the file's own."""
    if dialect == "put":
        if "put {o} in/on {r}" not in data["grammar"]:
            raise ValueError("the file does not hold the older grammar; the real engine plays it in dialect 'move' only")
        return data
    task = data["grammar"].partition("Your task is to: ")[2].partition('"')[0].removesuffix(".")
    packaged = files("alfworld") / "data"
    grammar = (packaged / "alfred.twl2").read_text("utf-8").replace("UNKNOWN GOAL", task)
    return {**data, "pddl_domain": (packaged / "alfred.pddl").read_text("utf-8"), "grammar": grammar}


def remember_parsing() -> None:
    """Parse every grammar text and every query once. Symbols are handed out as copies: the engine writes into them."""
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse, known = textgen._parse_and_convert, {}

    def parse_once(text: str, rule_name: str, **options: Any) -> Any:
        if (text, rule_name) not in known:
            known[text, rule_name] = parse(text, rule_name=rule_name, **options)
        return copy.deepcopy(known[text, rule_name])

    textgen._parse_and_convert = parse_once
    Rule.parse_conjunctive_query = staticmethod(functools.cache(Rule.parse_conjunctive_query))


def remember_translation() -> None:
    """Translate a problem once, not four times an episode, and not for the planner, which nobody asks."""
    import fast_downward

    translate = functools.lru_cache(maxsize=16)(fast_downward.pddl2sas)

    def translate_once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        return translate(domain, problem, verbose=verbose)

    fast_downward.pddl2sas = translate_once


def remember_commands(engine: Any) -> None:
    """Derive the text of a command once per action and arguments: names and places of receptacles never change."""
    grammar = engine._logic.grammar
    derive: Callable[..., str] = grammar.derive
    # The arguments that a command does not mention (where a `go` starts, say) cannot change it.
    named = {a.template: set(re.findall(r"\w+", a.template)) for a in engine._logic.actions.values()}
    known: dict[tuple[Any, ...], str] = {}

    def derive_once(start: str, context: dict[str, Any]) -> str:
        if start not in named:
            return derive(start, context)
        key = (start, *sorted((p.name, v.name) for p, v in context["mapping"].items() if p.name in named[start]))
        if key not in known:
            known[key] = derive(start, context)
        return known[key]

    grammar.derive = derive_once


def main() -> None:
    """Answer requests until the pipe closes."""
    fd, dialect, *flags = sys.argv[1:]
    pipe = Connection(int(fd))
    game: RealGame | None = None
    while True:
        try:
            what, argument = pipe.recv()
        except EOFError:
            return
        try:
            game = game or RealGame(dialect, "--caches" in flags)
            answer = (True, getattr(game, what)(argument))
        except Exception as e:  # whatever the engine raises is for the caller to report
            answer = (False, f"{type(e).__name__}: {e}")
        pipe.send(answer)


if __name__ == "__main__":
    main()
