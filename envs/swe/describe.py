"""Issue texts for generated bugs: which call, what came, what should have come. Written from examples, by a grammar with variants.

A text never shows a line that the bug changed, the name of a test or of a file of tests, or a diff: see `leaks`.
"""

from __future__ import annotations

import ast
import functools
import random
import re
from collections.abc import Collection, Sequence

from . import diffs
from .describe_kinds import SHORT, contrast, kind
from .examples import Example

MOST = 150  # words
_CALL = 170  # letters of a call with its setup that is shown
_TITLES = {
    "crash": ("{f} fails with {error}", "{error} in {f}", "{f} raises {error} where it should not"),
    "accepts": ("{f} does not raise {wanted}", "{f} accepts what it should refuse", "No {wanted} from {f} any more"),
    "other_error": ("{f} raises {error} instead of {wanted}", "{error} from {f}, expected {wanted}"),
    "truth": ("{f} gives the opposite answer", "{f} answers wrongly", "Wrong answer of {f}"),
    "none": ("{f} returns None", "{f} gives None instead of a result", "No result from {f}"),
    "case": ("{f} gets upper and lower case wrong", "Wrong case in the result of {f}"),
    "space": ("{f} gets the white space wrong", "White space is wrong in the result of {f}"),
    "text": ("{f} gives a wrong text", "Wrong result of {f}", "{f} does not give the expected text"),
    "number": ("{f} gives a wrong number", "Wrong number from {f}", "{f} is off"),
    "missing": ("{f} loses items", "Items are missing in the result of {f}"),
    "extra": ("{f} gives too many items", "The result of {f} has items that do not belong there"),
    "order": ("{f} gives its items in the wrong order", "Wrong order of the result of {f}"),
    "items": ("{f} gives wrong items", "Wrong items in the result of {f}"),
    "keys": ("{f} gives a result with the wrong keys", "Wrong keys in the result of {f}"),
    "type": ("{f} gives a result of the wrong type", "Wrong type of result from {f}"),
    "value": ("{f} gives a wrong result", "Wrong result of {f}", "{f} does not do what it should"),
}
_FEW = ("I have seen it only in this case; others that I tried are fine.", "Other calls that I tried behave well.", "It seems to be a special case.")
_SOME = ("A few other calls go wrong in a similar way.", "It is not the only input that goes wrong.", "Similar calls are affected too.")
_MANY = ("Much else goes wrong with it.", "A lot of other calls are affected.", "Many other cases that used to work are broken as well.")


def describe(package: str, groups: Sequence[Sequence[Example]], failing: int, seed: str) -> str | None:
    """Return an issue text, or None where the examples do not say enough.

    package  its name
    groups   the examples of each bug: one group, or two for a double bug
    failing  how many tests fail: whether it is a special case
    seed     chooses among the variants
    """
    rng = random.Random(seed)
    chosen = [best(group) for group in groups]
    if not all(chosen):
        return None
    for each in (3, 2, 1):
        text = _text(package, [c[:each] for c in chosen], failing, random.Random(rng.random()))
        if len(text.split()) <= MOST and len(text) <= 8 * MOST:
            return text
    return None


def best(examples: Sequence[Example]) -> list[Example]:
    """Return up to three examples that show the most with the least: short, of public names, of different calls and kinds."""
    fit = sorted((e for e in examples if _cost(e) is not None), key=lambda e: (_cost(e), e.call, e.test))
    out: list[Example] = []
    for example in fit:
        if len(out) < 3 and example.call not in [o.call for o in out] and (not out or _same_function(out[0], example)):
            out.append(example)
    return out


def _same_function(a: Example, b: Example) -> bool:
    return subject(a) == subject(b)


def _cost(e: Example) -> float | None:
    """Return how much there is to read and to guess in an example; None where it cannot be shown."""
    shown = len(e.call) + sum(map(len, e.setup))
    results = [_shown(r) for r in (e.expected, e.actual)]
    if (
        shown > 3 * _CALL
        or len(e.call) > 2 * _CALL
        or e.call.startswith(("raises(", "pickle."))
        or (None in results and contrast(e.expected, e.actual) is None)
    ):
        return None
    if e.expected[0] == e.actual[0] == "object" and e.expected == e.actual:
        return None
    private = any(part.startswith("_") and not part.startswith("__") for part in re.findall(r"[\w]+", f"{e.name} {e.call.split('(')[0]}"))
    return shown + sum(len(r or "") or SHORT for r in results) / 2 + 150 * private + 60 * (not e.sure) + 40 * (not e.name) + 15 * len(e.setup)


def subject(e: Example) -> str:
    """Return what an example is about: the function's full name, or the outermost call of an expression."""
    if e.name:
        return re.sub(r"\.__\w+__$", "", e.name)
    try:
        node = ast.parse(e.call, mode="eval").body
    except (SyntaxError, ValueError):
        return e.call.split("(")[0]
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call) and not isinstance(n.func, ast.Call)]
    names = [
        n for n in map(ast.unparse, calls) if n not in ("list", "tuple", "dict", "set", "sorted", "str", "repr", "len", "next", "isinstance", "type")
    ]
    return names[0].split("(")[0] if names else e.call.split("(")[0]


# --- the text ------------------------------------------------------------------------------------------------------


def _text(package: str, chosen: Sequence[Sequence[Example]], failing: int, rng: random.Random) -> str:
    form = rng.choice((_session, _report, _prose, _script))
    parts = [f"{_title(package, group[0], rng)}\n\n{form(group, rng)}" for group in chosen]
    if len(parts) == 1:
        tail = _FEW if failing == 1 else _SOME if failing < 8 else _MANY
        shown = len(chosen[0])
        more = failing == 1 or failing > shown
        return parts[0] + (f"\n\n{rng.choice(tail)}" if more and rng.random() < 0.8 else "")
    head = rng.choice((f"Two problems with {package}", f"{package}: two things are broken", f"Two regressions in {package}"))
    return "\n\n".join([head, *(f"{i}. {part}" for i, part in enumerate(parts, 1))])


def _title(package: str, e: Example, rng: random.Random) -> str:
    name = subject(e)
    name = name if name.startswith(package.replace("-", "_")) or not e.name or rng.random() < 0.5 else f"{package}: {name}"
    words = {"f": f"`{name}`", "error": e.actual[1] if e.actual[0] == "error" else "", "wanted": e.expected[1] if e.expected[0] == "error" else ""}
    text = rng.choice(_TITLES[kind(e)]).format(**words)
    return text[0].upper() + text[1:] if text[0].isalpha() else text


def _shown(result: tuple[str, ...]) -> str | None:
    """Return a result as it is written in a sentence, or None where it is too long for that."""
    match result:
        case ("error", name, message):
            return f"{name}: {message}" if message else name
        case ("object", name):
            return f"a {name}" if name[0].lower() not in "aeiou" else f"an {name}"
        case ("items", *items):
            text = f"[{', '.join(items)}]"
        case ("value", value):
            text = value
        case ("true" | "false" as truth,):
            return truth.capitalize()
        case _:
            return "a result"
    return text if len(text) <= SHORT else None


def _is(result: tuple[str, ...], verb: str) -> str:
    """Return what a call does, as the end of a sentence: "returns `3`", "raises `KeyError: 'a'`"."""
    text = _shown(result)
    if result[0] == "error":
        return f"{'raises' if verb == 'returns' else 'raise'} `{text}`"
    if result[0] == "works":
        return "works" if verb == "returns" else "work"
    if result[0] == "items":
        return f"{'yields' if verb == 'returns' else 'yield'} `{text}`"
    if result[0] in ("true", "false"):
        return f"is {text}" if verb == "returns" else f"be {text}"
    return f"{verb} {text}" if result[0] == "object" else f"{verb} `{text}`"


def _long(e: Example) -> str | None:
    """Return the contrast of two results where one of them is too long to be shown."""
    return contrast(e.expected, e.actual) if None in (_shown(e.expected), _shown(e.actual)) else None


def _session(group: Sequence[Example], rng: random.Random) -> str:
    """A session of the interpreter for the first example, with what was expected; the others in a line each."""
    first = group[0]
    lines = [f">>> {line}" for line in (*_imports(first), *first.setup, first.call)]
    long = _long(first)
    if long is None:
        lines.append(_printed(first.actual))
    wanted = f"Expected: {_plain(first.expected)}" if long is None else f"In the result, {long}."
    out = "```\n" + "\n".join(line for line in lines if line) + f"\n```\n{wanted}"
    return "\n\n".join([out, *_others(group[1:], rng)])


def _printed(result: tuple[str, ...]) -> str:
    return {"error": f"{_shown(result)}", "object": f"<{result[-1]}>"}.get(result[0], _shown(result) or "")


def _plain(result: tuple[str, ...]) -> str:
    text = _shown(result)
    if result[0] == "error":
        return f"`{text}`"
    return f"`{text}`" if result[0] in ("value", "items") else "no error" if result[0] == "works" else str(text)


def _report(group: Sequence[Example], rng: random.Random) -> str:
    """Steps, expected, actual."""
    first = group[0]
    code = "\n".join([*_imports(first), *first.setup, first.call])
    long = _long(first)
    heads = rng.choice((("Steps to reproduce", "Expected", "Actual"), ("What I did", "What I expected", "What I got"), ("Code", "Should be", "Is")))
    if long is not None:
        return "\n\n".join([f"{heads[0]}:\n```python\n{code}\n```\nIn the result, {long}.", *_others(group[1:], rng)])
    out = f"{heads[0]}:\n```python\n{code}\n```\n{heads[1]}: {_plain(first.expected)}\n\n{heads[2]}: {_plain(first.actual)}"
    return "\n\n".join([out, *_others(group[1:], rng)])


def _prose(group: Sequence[Example], rng: random.Random) -> str:
    """Sentences, a list for the other examples."""
    first = group[0]
    long = _long(first)
    if first.setup:
        start = f"After\n```python\n{chr(10).join([*_imports(first), *first.setup])}\n```\n`{first.call}`"
    else:
        start = f"{rng.choice(('Calling', 'The call', 'When I try'))} `{first.call}`" if rng.random() < 0.0 else f"`{first.call}`"
    if long is not None:
        out = f"{start} gives a wrong result: {long}."
    else:
        out = f"{start} {_is(first.actual, 'returns')}. {rng.choice(('It should', 'I would expect it to'))} {_is(first.expected, 'return')}."
    return "\n\n".join([out, *_others(group[1:], rng)])


def _script(group: Sequence[Example], rng: random.Random) -> str:
    """One block of code, with what comes and what should come as comments."""
    lines: list[str] = [*_imports(group[0])]
    for e in group:
        said = _long(e) or f"{_bare(e.actual)}; expected {_bare(e.expected)}"
        lines += [*(line for line in e.setup if line not in lines), e.call, f"#   {said}"]
    return "```python\n" + "\n".join(lines) + "\n```"


def _bare(result: tuple[str, ...]) -> str:
    return "no error" if result[0] == "works" else str(_shown(result))


def _others(rest: Sequence[Example], rng: random.Random) -> list[str]:
    """Return the other examples as a list, those with a setup of their own left out."""
    lines = [f"- `{e.call}` {_is(e.actual, 'returns')}, should {_is(e.expected, 'return')}" for e in rest if not e.setup and _long(e) is None]
    return [rng.choice(("Also:", "Likewise:", "The same kind of thing:")) + "\n" + "\n".join(lines)] if lines else []


def _imports(e: Example) -> list[str]:
    """Return the import that the first line of an example needs, where its name says it."""
    first = (e.setup or (e.call,))[0].split(" = ")[-1]
    parts = e.name.split(".")
    at = next((i for i, part in enumerate(parts) if i and (part[:1].isupper() or i == len(parts) - 1)), 0)
    if at and re.match(rf"(\w+\()*{re.escape(parts[at])}\b", first):
        return [f"from {'.'.join(parts[:at])} import {parts[at]}"]
    return []


# --- what must not be said -----------------------------------------------------------------------------------------


def leaks(text: str, diff: str, tests: Collection[str]) -> str | None:
    """Return what a text gives away of the bug or of the hidden tests, or None.

    diff   the bug, or its reverse
    tests  ids of tests
    """
    if re.search(r"^(@@ |diff --git|\+\+\+ [ab/]|--- [ab/])", text, re.MULTILINE):
        return "a diff"
    for file in diffs.parse(diff):
        for line in (line for hunk in file.hunks for line in hunk.lines):
            bare = line[1:].strip()
            if line[0] in "+-" and len(bare) >= 8 and bare in text:
                return f"the line {bare!r}"
    said = set(re.findall(r"[\w./-]+", text)) | set(re.findall(r"\w+", text))
    for name in said & _names(frozenset(tests)):
        return f"the test's name {name!r}"
    return None


@functools.lru_cache(maxsize=4)
def _names(tests: frozenset[str]) -> frozenset[str]:
    """Return the names of tests, of their classes and files."""
    out: set[str] = set()
    for id in tests:
        path, *names = id.split("[")[0].split("::")
        out |= {path, path.rpartition("/")[2], *names}
    return frozenset(out)
