"""Scores of an answer, and the reward for keeping to the format. Only what the policy wrote is ever scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from agentgym.answers import normalise, token_f1


def exact_match(prediction: str, golds: str | Sequence[str]) -> float:
    """Return 1.0 where the prediction equals one of the right answers after `normalise`, else 0.0.

    A right answer of which nothing is left ("A", a blood group) is compared as it stands, apart from case and blanks:
    otherwise saying nothing would match it.
    """
    return _best(_exact, prediction, golds)


def sub_exact_match(prediction: str, golds: str | Sequence[str], *, max_words: int | None = None) -> float:
    """Return 1.0 where a normalised right answer is contained in the normalised prediction, letter by letter as in Search-R1.

    A long list of guesses wins here: in training set `max_words`, above which an answer scores 0.0.
    """
    if max_words is not None and len(prediction.split()) > max_words:
        return 0.0
    return _best(_contained, prediction, golds)


def f1(prediction: str, golds: str | Sequence[str]) -> float:
    """Return the F1 of the words after `normalise`, of the right answer that fits best, in [0, 1] (SQuAD, arXiv 1606.05250).

    As a reward on its own it is known to collapse: a policy learns to avoid answers. Give it together with `exact_match` or
    `format_reward`, under which saying nothing is worth less than a wrong answer.
    """
    return _best(_overlap, prediction, golds)


def _best(score: Callable[[str, str], float], prediction: str, golds: str | Sequence[str]) -> float:
    return max((score(prediction, gold) for gold in ([golds] if isinstance(golds, str) else golds)), default=0.0)


def _exact(prediction: str, gold: str) -> float:
    wanted = normalise(gold)
    if wanted:
        return float(normalise(prediction) == wanted)
    raw = gold.lower().split()
    return float(bool(raw) and prediction.lower().split() == raw)


def _contained(prediction: str, gold: str) -> float:
    wanted = normalise(gold)
    return float(wanted in normalise(prediction)) if wanted else _exact(prediction, gold)


def _overlap(prediction: str, gold: str) -> float:
    return token_f1(prediction, gold) if normalise(gold) else _exact(prediction, gold)


# --- what the policy wrote -----------------------------------------------------------------------------------------

_OPENED = re.compile(r"<(search|answer)>")
_TAG = re.compile(r"</?(?:think|search|information|answer)>")
# One completion in good form: thought, then one action; nothing but white space around them, no other tag inside.
_TURN = re.compile(r"\s*<think>([^<]|<(?!/?(?:think|search|information|answer)>))*</think>\s*<(search|answer)>(.*?)</\2>\s*", re.DOTALL)


def action(completion: str) -> tuple[str, str] | None:
    """Return ("search", query) or ("answer", text) of the first complete tag in a completion, or None."""
    never_closed = set()
    for opened in _OPENED.finditer(completion):
        kind = opened[1]
        end = -1 if kind in never_closed else completion.find(f"</{kind}>", opened.end())
        if end >= 0:
            return kind, completion[opened.end() : end].strip()
        never_closed.add(kind)  # looked for once, however often it is opened
    return None


def final_answer(completions: Iterable[str]) -> str | None:
    """Return the answer of an episode from what the policy wrote, or None.

    An episode ends at the first `<answer>`: what is written after it, further answers included, counts for nothing, and so
    does an answer behind a search in the same completion. Prompt and documents are not looked at.
    """
    for completion in completions:
        found = action(completion)
        if found is not None and found[0] == "answer":
            return found[1]
    return None


def well_formed(completions: Sequence[str]) -> bool:
    """Return whether an episode is think → search → (documents) → think … → answer with only white space between the tags.

    `completions` is what the policy wrote, in order; the documents come between two of them and need no check.
    """
    kinds = []
    for completion in completions:
        turn = _TURN.fullmatch(completion)
        if turn is None or _TAG.search(turn[3]):
            return False
        kinds.append(turn[2])
    return bool(kinds) and kinds[-1] == "answer" and "answer" not in kinds[:-1]


def format_reward(completions: Sequence[str], golds: str | Sequence[str], *, structure: float = 0.2, final: float = 0.1) -> float:
    """Return Search-R1 v0.3's reward (arXiv 2505.15117), by exact match and by form; `structure` is its λ_f, `final` its λ_t:

    right 1 / 1 - structure (good / bad form), wrong structure / final, none structure / 0. An empty answer is none. An episode
    that gives no answer at all is never in good form, so avoiding the answer earns nothing.
    """
    answer, good = final_answer(completions), well_formed(completions)
    if not answer:
        return structure if good else 0.0
    if exact_match(answer, golds):
        return 1.0 if good else 1.0 - structure
    return structure if good else final
