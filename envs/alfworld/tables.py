"""Turns the initial facts of a problem into the numbered tables of a Game."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from .pddl import Facts, GameFileError

Numbers = Mapping[str, int]  # id → its position among the sorted ids

_OBJECT_SETS = ("pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable")
_PROPERTIES = ("clean", "hot", "cool", "sliced", "toggled")
_KNOWN = {
    "atlocation", "receptacleatlocation", "objectatlocation", "inreceptacle", "objecttype", "receptacletype",
    "cancontain", "openable", "opened", "ison", "moveable", "checked", "examined", "wasinreceptacle", "full",
    "inreceptacleobject", "isreceptacleobject", "isreceptacleobjectfull", *_OBJECT_SETS,
    *(f"is{p}" for p in _PROPERTIES),
}  # fmt: skip


_NESTED = (("inreceptacleobject", 0), ("inreceptacleobject", 1))


def readable_names(ids: Iterable[str]) -> dict[str, str]:
    """Return id → readable name ("apple 1"). Along the sorted ids of a class the numbers fall, down to 1."""
    left: Counter[str] = Counter()
    classes: dict[str, str] = {}
    for key in sorted(set(ids)):
        head, bar, _ = key.partition("_bar_")
        # A sink and its basin share the text before the first "_bar_"; the engine keeps them apart by this word alone.
        classes[key] = head + ("basin" if bar and "basin" in key else "")
        left[classes[key]] += bool(bar)
    names = {}
    for key, kind in classes.items():
        numbered = "_bar_" in key
        names[key] = f"{kind} {left[kind]}" if numbered else f"{kind} "  # the trailing blank is the engine's
        left[kind] -= numbered
    return names


def tables(facts: Facts, source: str) -> dict[str, Any]:
    """Return the fields of Game that come from the facts. Raises GameFileError on facts that the rules do not cover."""
    start = _check(facts, source)
    o_of = _number(facts, ("objecttype", 0), ("objectatlocation", 0), ("inreceptacle", 0), *_NESTED)
    r_of = _number(facts, ("receptacletype", 0), ("receptacleatlocation", 0), ("inreceptacle", 1))
    l_of = _number(facts, ("atlocation", 1), ("receptacleatlocation", 1), ("objectatlocation", 1))
    names = readable_names(argument for pairs in facts.values() for pair in pairs for argument in pair if argument)
    places = _related(facts["receptacleatlocation"], r_of, l_of)
    return {
        **_named("object", o_of, names),
        **_named("receptacle", r_of, names),
        **_named("location", l_of, names),
        "object_types": _types(facts["objecttype"], o_of),
        "object_places": tuple(map(frozenset, _related(facts["objectatlocation"], o_of, l_of))),
        "receptacle_types": _types(facts["receptacletype"], r_of),
        "receptacle_places": tuple(_only_place(ls, r, r_of, source) for r, ls in enumerate(places)),
        "start": l_of[start],
        "contents": tuple(_related(((r, o) for o, r in facts["inreceptacle"]), r_of, o_of)),
        "fits": _fits(facts, o_of, r_of),
        "openable": _set(facts["openable"], r_of),
        "opened": _set(facts["opened"], r_of),
        "portable": _set(facts["isreceptacleobject"], o_of),
        "inside": _inside(facts, o_of),
        **{p: _set(facts[p], o_of) for p in _OBJECT_SETS},
        **{p: _set(facts[f"is{p}"], o_of) for p in _PROPERTIES},
    }


def _check(facts: Facts, source: str) -> str:
    """Refuse what the engine cannot play; return the id of the start location."""
    unknown = sorted(set(facts) - _KNOWN)
    if unknown:
        raise GameFileError(f"{source}: (:init …) has the fact {unknown[0]!r}, which ALFWorld's rules do not cover")
    starts = {place for _, place in facts["atlocation"]}
    if len(starts) != 1:
        raise GameFileError(f"{source}: the agent must start at exactly one location; (:init …) gives {len(starts)}")
    if not facts["receptacleatlocation"]:
        raise GameFileError(f"{source}: (:init …) places no receptacle; the problem is truncated or empty")
    return starts.pop()


def _number(facts: Facts, *columns: tuple[str, int]) -> dict[str, int]:
    ids = {pair[i] for predicate, i in columns for pair in facts[predicate]}
    return {key: i for i, key in enumerate(sorted(ids))}


def _named(what: str, index: Numbers, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {f"{what}_ids": tuple(index), f"{what}_names": tuple(names[key] for key in index)}


def _set(pairs: Iterable[tuple[str, str]], index: Numbers) -> frozenset[int]:
    return frozenset(index[key] for key, _ in pairs if key in index)


def _related(pairs: Iterable[tuple[str, str]], left: Numbers, right: Numbers) -> list[tuple[int, ...]]:
    """Return for every id of `left` the sorted numbers of the `right` ids that it is paired with."""
    out: list[set[int]] = [set() for _ in left]
    for a, b in pairs:
        out[left[a]].add(right[b])
    return [tuple(sorted(found)) for found in out]


def _types(pairs: Iterable[tuple[str, str]], index: Numbers) -> tuple[frozenset[str], ...]:
    found: list[set[str]] = [set() for _ in index]
    for key, kind in pairs:
        found[index[key]].add(kind)
    return tuple(map(frozenset, found))


def _only_place(places: tuple[int, ...], r: int, index: Numbers, source: str) -> int | None:
    if len(places) > 1:
        raise GameFileError(f"{source}: receptacle {list(index)[r]!r} is at {len(places)} locations; it must be at one")
    return places[0] if places else None


def _fits(facts: Facts, o_of: Numbers, r_of: Numbers) -> tuple[frozenset[int], ...]:
    by_type: dict[str, set[int]] = defaultdict(set)
    pickupable = _set(facts["pickupable"], o_of)
    for key, kind in facts["objecttype"]:
        if o_of[key] in pickupable:
            by_type[kind].add(o_of[key])
    holds: dict[str, set[int]] = defaultdict(set)
    for rtype, otype in facts["cancontain"]:
        holds[rtype] |= by_type.get(otype, set())
    shared = {rtype: frozenset(objects) for rtype, objects in holds.items()}
    out: list[frozenset[int]] = [frozenset()] * len(r_of)
    for key, rtype in facts["receptacletype"]:
        out[r_of[key]] |= shared.get(rtype, frozenset())
    return tuple(out)


def _inside(facts: Facts, o_of: Numbers) -> dict[int, tuple[int, ...]]:
    pairs = ((outer, inner) for inner, outer in facts["inreceptacleobject"] if inner != outer)
    return {outer: inner for outer, inner in enumerate(_related(pairs, o_of, o_of)) if inner}
