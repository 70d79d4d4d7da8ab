"""How calls and values of a package are written as Python: its objects as the calls that made them.

Copied next to the tree under test with swe_names.py; imports only the standard library and that.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from typing import Any

from swe_names import Names, Owner
from swe_values import Values, is_test_made, same

_SETUP = 8  # lines before a call
_SPEAKS = {
    "__getitem__": "{0}[{1}]",
    "__setitem__": "{0}[{1}] = {2}",
    "__delitem__": "del {0}[{1}]",
    "__contains__": "{1} in {0}",
    "__len__": "len({0})",
    "__iter__": "list({0})",
    "__next__": "next({0})",
    "__repr__": "repr({0})",
    "__str__": "str({0})",
    "__hash__": "hash({0})",
    "__bool__": "bool({0})",
    "__int__": "int({0})",
    "__reversed__": "list(reversed({0}))",
    "__copy__": "copy.copy({0})",
    "__call__": "",
}
_SPEAKS |= {f"__{name}__": f"{{0}} {sign} {{1}}" for name, sign in zip("eq ne lt le gt ge".split(), "== != < <= > >=".split(), strict=True)}
_SPEAKS |= {f"__{name}__": f"{{0}} {sign} {{1}}" for name, sign in zip("add sub mul or and xor mod".split(), "+ - * | & ^ %".split(), strict=True)}
_BUILTIN = frozenset(__builtins__ if isinstance(__builtins__, dict) else vars(__builtins__))
_FREE = ("function", "static", "made")  # kinds without an object before the dot
_QUIET = (
    "__contains__",
    "__len__",
    "__iter__",
    "__repr__",
    "__str__",
    "__hash__",
    "__bool__",
    "__int__",
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
)


class Objects(Values):
    """The objects of the package that one test made, and the lines that made them what they are."""

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.script: list[tuple[int, str, frozenset[int], bool]] = []  # of which object, the line, the other objects in it, whether it is clear
        self.maker: dict[int, str] = {}

    # --- calls

    def call(self, frame: types.FrameType) -> dict[str, Any] | None:
        """Return the note of a call that begins, or None where it has no public name."""
        self.needs = set[int]()
        owner = self.names.owner(frame) or self._returned(frame)
        if owner is None or (owner.kind not in _FREE and is_test_made(frame.f_locals.get(frame.f_code.co_varnames[0]))):
            return None
        given, clear = self._arguments(frame, owner)
        text, subject = self._written(frame, owner, given)
        if text is None:
            return None
        setup, short = self.setup(self.needs)
        clear = clear and short
        known = id(subject) if subject is not None and id(subject) in self.variable else None
        name = owner.name if subject is None or owner.kind in _FREE else f"{self._of(subject)}.{owner.name.rpartition('.')[2]}"
        line = text
        if known is not None and text.startswith(self.inline.get(known, "\n")):  # a line of its own names the object
            line = self.variable[known] + text[len(self.inline[known]) :]
        note: dict[str, Any] = {"call": text, "line": line, "name": name, "setup": setup, "clear": clear, "kind": owner.kind, "self": known}
        if owner.kind == "init":
            note["name"], note["self"] = self._of(subject), None
            note["made"] = subject if not isinstance(subject, type) else None
        self.needs_of_call = frozenset(self.needs)
        return note

    def _returned(self, frame: types.FrameType) -> Owner | None:
        """Return the owner of a function that the package made and gave to the test, as the variable that holds it."""
        for value in reversed(self.kept):
            if isinstance(value, types.FunctionType) and value.__code__ is frame.f_code:
                cells = dict(zip(frame.f_code.co_freevars, value.__closure__ or (), strict=False))
                if all(name in frame.f_locals and cell.cell_contents is frame.f_locals[name] for name, cell in cells.items()):
                    self.needs.add(id(value))
                    return Owner(self.maker[id(value)], "made", value)
        return None

    def _arguments(self, frame: types.FrameType, owner: Owner) -> tuple[list[str], bool]:
        """Return the arguments as they would be written, without those that are the defaults."""
        code, local = frame.f_code, frame.f_locals
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        first = 1 if owner.kind in ("method", "property", "class", "init") else 0
        positional, keywords = names[first : code.co_argcount], names[code.co_argcount :]
        defaults = dict(zip(names[: code.co_argcount][::-1], (getattr(owner.function, "__defaults__", None) or ())[::-1], strict=False))
        defaults |= getattr(owner.function, "__kwdefaults__", None) or {}
        at = len(names)
        more = local.get(code.co_varnames[at], ()) if code.co_flags & inspect.CO_VARARGS else ()
        at += bool(code.co_flags & inspect.CO_VARARGS)
        named = local.get(code.co_varnames[at], {}) if code.co_flags & inspect.CO_VARKEYWORDS else {}
        out, clear, gap = [], True, False
        for name in positional:
            if name not in local or (name in defaults and same(local[name], defaults[name]) and not more):
                gap = True
                continue
            text, ok = self.show(local[name])
            out.append(f"{name}={text}" if gap else text)
            clear = clear and ok
        rest = [("", v) for v in more] + [(f"{k}=", local[k]) for k in keywords if k in local and not (k in defaults and same(local[k], defaults[k]))]
        for prefix, value in [*rest, *((f"{k}=", v) for k, v in dict(named).items())]:
            text, ok = self.show(value)
            out.append(prefix + text)
            clear = clear and ok
        return out, clear

    def _written(self, frame: types.FrameType, owner: Owner, given: list[str]) -> tuple[str | None, Any]:
        """Return a call as text and the object it is of."""
        args, short = ", ".join(given), owner.name.rpartition(".")[2]
        if owner.kind == "made":
            return f"{self.variable[id(owner.function)]}({args})", None
        if owner.kind in ("function", "static"):
            name = ".".join(owner.name.split(".")[-2:]) if owner.kind == "static" else short
            return f"{name}({args})", None
        subject = frame.f_locals.get(frame.f_code.co_varnames[0])
        if owner.kind == "init":
            return f"{self._of(subject).rpartition('.')[2]}({args})", subject
        if owner.kind == "class":
            return f"{getattr(subject, '__name__', 'cls')}.{short}({args})", subject
        expression, ok = self.show(subject)
        if not ok:
            return None, subject
        if owner.kind == "property":
            return f"{expression}.{short}", subject
        if not short.startswith("__"):
            return f"{expression}.{short}({args})", subject
        if short not in _SPEAKS:
            return None, subject
        form = _SPEAKS[short]
        if max((int(n) for n in re.findall(r"\{(\d)\}", form)), default=0) > len(given):
            return None, subject
        if short == "__call__":
            return f"{expression}({args})", subject
        parts = [expression, *given]
        return re.sub(r"\{(\d)\}", lambda m: parts[int(m[1])], form), subject

    def _of(self, subject: Any) -> str:
        """Return the public name of an object's class."""
        kind = subject if isinstance(subject, type) else type(subject)
        if kind.__name__.startswith("_") and id(subject) in self.maker:  # nobody knows the class, but what makes its objects
            return self.maker[id(subject)]
        self.names.look()
        module = kind.__module__
        while "." in module and getattr(sys.modules.get(module.rpartition(".")[0]), kind.__name__, None) is kind:
            module = module.rpartition(".")[0]
        return f"{module}.{kind.__name__}"

    def result(self, note: dict[str, Any], value: object) -> list[Any]:
        """Return what came of a call, and remember what it made or changed."""
        if note["kind"] == "init" and note.get("made") is not None:
            value = note["made"]
        if self._is_own(value) and id(value) not in self.variable and not note["call"].startswith("del "):
            self._made(value, note)
        elif note["self"] is not None and note["kind"] == "method" and not any(note["name"].endswith(q) for q in _QUIET):
            self.script.append((note["self"], note["line"], self.needs_of_call, note["clear"]))
            self.inline.pop(note["self"], None)
        if note["kind"] == "init":
            return ["object", type(value).__name__]
        text, clear = self.show(value, expression=False)
        return ["value", text] if clear else ["object", type(value).__name__]

    def _is_own(self, value: object) -> bool:
        if isinstance(value, types.FunctionType):
            return self.names.own(value.__module__) and "<locals>" in value.__qualname__ and id(value) not in self.names.things
        return self.names.own(type(value).__module__) and not isinstance(value, type | BaseException | types.ModuleType)

    def _made(self, value: object, note: dict[str, Any]) -> None:
        call, clear = note["call"], note["clear"]
        word = (re.findall(r"[A-Z]+[a-z0-9]*|[a-z0-9]+", type(value).__name__) or ["thing"])[-1].lower()
        word = re.sub(r"^(lru|lfu|ttl|rr|fifo|tlru|uri|iri)(?=.)", "", word)
        word = f"the_{word}" if word in _BUILTIN else word
        used = sum(v.rstrip("0123456789") == word for v in self.variable.values())
        name = word if not used else f"{word}{used + 1}"
        self.kept.append(value)
        self.variable[id(value)] = name
        self.maker[id(value)] = note["name"]
        if len(call) <= 70 and clear and not self.needs_of_call and not isinstance(value, types.FunctionType):
            self.inline[id(value)] = call
        self.script.append((id(value), f"{name} = {call}", self.needs_of_call, clear))

    def setup(self, needs: set[int]) -> tuple[list[str], bool]:
        """Return the lines that make the objects that a call needs; and whether they are few enough to be shown."""
        wanted, size = set(needs), -1
        while len(wanted) != size:
            size = len(wanted)
            wanted |= {i for of, _, others, _ in self.script if of in wanted for i in others}
        lines = [(line, clear) for of, line, _, clear in self.script if of in wanted]
        return [line for line, _ in lines[:_SETUP]], len(lines) <= _SETUP and all(clear for _, clear in lines)
