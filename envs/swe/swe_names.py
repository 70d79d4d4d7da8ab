"""The public names of a package's functions and methods. Copied next to the tree under test; imports only the standard library."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


@functools.lru_cache(maxsize=4096)
def is_test(file: str) -> bool:
    """Return whether a file is of the tests, by its name and its folders below the current one."""
    *folders, name = os.path.relpath(file).split(os.sep)
    own = name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py") or any(f in ("test", "tests") for f in folders)
    return own and ".." not in folders


class Owner(NamedTuple):
    """What a piece of code belongs to: `name` as a user imports it, `kind` of function, method, class, static, property, init."""

    name: str
    kind: str
    function: Any


class Names:
    """The public names of a package's functions and methods, by their code."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.folders = folders
        self.found: dict[types.CodeType, list[Owner]] = {}
        self.things: dict[int, str] = {}
        self.seen = 0

    def own(self, module: str | None) -> bool:
        """Return whether a module is the package's own, by its name."""
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        return bool(file) and any(os.path.abspath(str(file)).startswith(f) for f in self.folders) and not is_test(str(file))

    def look(self) -> None:
        """Read the names of all modules of the package that are loaded; again when there are more."""
        if len(sys.modules) == self.seen:
            return
        self.seen = len(sys.modules)
        mine = sorted(name for name in list(sys.modules) if self.own(name))
        self.found, self.things = {}, {}
        for name in mine:
            for key, thing in list(vars(sys.modules[name]).items()):
                if not key.startswith("__"):
                    self._add(f"{name}.{key}", thing)
        for owners in self.found.values():
            owners.sort(key=lambda o: (any(p.startswith("_") for p in o.name.split(".")), o.name.count("."), len(o.name), o.name))

    def _add(self, name: str, thing: Any) -> None:
        if isinstance(thing, type):
            if self.own(thing.__module__):
                for key, member in list(vars(thing).items()):
                    self._member(f"{name}.{key}", member, key)
            return
        codes = list(_codes(thing))
        if codes and self.own(getattr(codes[0][1], "__module__", None)):
            for code, function in codes:
                self.found.setdefault(code, []).append(Owner(name, "function", function))
        if not isinstance(thing, types.ModuleType) and not isinstance(thing, PLAIN):
            old = self.things.get(id(thing))
            short = name.rpartition(".")[2]
            if not short.startswith("_") and (old is None or len(name) < len(old)):
                self.things[id(thing)] = name

    def _member(self, name: str, member: Any, key: str) -> None:
        kind, function = "method", member
        if isinstance(member, staticmethod | classmethod):
            kind, function = ("static" if isinstance(member, staticmethod) else "class"), member.__func__
        elif isinstance(member, property):
            kind, function = "property", member.fget
        elif isinstance(member, functools.cached_property):
            kind, function = "property", member.func
        if key in ("__init__", "__new__"):
            kind = "init"
        for code, found in _codes(function):
            self.found.setdefault(code, []).append(Owner(name, kind, found))

    def owner(self, frame: types.FrameType) -> Owner | None:
        """Return what the code of a frame is known as, or None for code without one public name."""
        self.look()
        owners = self.found.get(frame.f_code, [])
        if len({id(o.function) for o in owners}) > 1:  # one wrapper around several functions: which one is in its free variables
            inner = {getattr(frame.f_locals.get(v), "__name__", None) for v in frame.f_code.co_freevars}
            owners = [o for o in owners if o.name.rpartition(".")[2] in inner]
        return owners[0] if owners else None


def _codes(thing: Any) -> Iterator[tuple[types.CodeType, Any]]:
    """Yield the code objects behind a callable, what decorators wrapped included."""
    for _ in range(4):
        if isinstance(thing, types.FunctionType):
            yield thing.__code__, thing
        thing = getattr(thing, "__wrapped__", None) or (thing.__dict__.get("func") if isinstance(getattr(thing, "__dict__", None), dict) else None)
        if thing is None:
            return
