"""What a test calls in a package and what comes of it, as readable Python. Copied next to the tree under test; imports only the standard library.

Only calls that the tests' own code makes are noted, not those that the package makes itself. Each is
    {"call": "camelize('a_b')", "name": "inflection.camelize", "setup": ["…"], "clear": true, "result": ["value", "'AB'"]}
where the result is ["value", text], ["object", type], ["error", type, message] or ["items", [text, …]] of a generator, and "clear" says that
everything in the call is written out.
"""

from __future__ import annotations

import dis
import os
import sys
from types import CodeType, FrameType
from typing import Any

import swe_names
import swe_objects
import swe_statement

_KEPT = ("call", "name", "setup", "clear", "result")
_CALLS = 80  # noted in one test
_ITEMS = 12
_RETURNS = {dis.opmap[name] for name in ("RETURN_VALUE", "YIELD_VALUE", "RETURN_GENERATOR", "RETURN_CONST") if name in dis.opmap}
_GENERATOR, _COROUTINE = 0x20, 0x80 | 0x200


class Tracer:
    """Watches one test after the other: start, pause, resume, calls."""

    def __init__(self, folders: list[str]) -> None:
        self.folders = tuple(os.path.join(os.path.abspath(f), "") if os.path.isdir(f) else os.path.abspath(f) for f in folders)
        self.kinds: dict[CodeType, str] = {}
        self.names = swe_names.Names(self.folders)
        self.begin()

    def begin(self) -> None:
        self.noted: list[dict[str, Any]] = []
        self.active: FrameType | None = None
        self.running: dict[FrameType, dict[str, Any]] = {}
        self.raised: tuple[str, str] | None = None
        self.objects = swe_objects.Objects(self.names)

    def start(self) -> None:
        self.begin()
        self.resume()

    def resume(self) -> None:
        self.active = None
        sys.settrace(self.enter)

    def pause(self) -> None:
        sys.settrace(None)

    def calls(self) -> list[dict[str, Any]]:
        """Return what the test called, in order."""
        done, self.noted = self.noted, []
        self.begin()
        return [{k: note[k] for k in _KEPT} for note in done if "result" in note]

    def shown(self, value: object) -> str:
        return self.objects.show(value, expression=False)[0]

    # --- the trace function

    def kind(self, code: CodeType) -> str:
        found = self.kinds.get(code)
        if found is None:
            file = os.path.abspath(code.co_filename)
            if swe_names.is_test(file):
                found = "test"
            elif any(file == f or file.startswith(f) for f in self.folders):
                found = "package"
            else:
                found = "other"
            self.kinds[code] = found
        return found

    def enter(self, frame: FrameType, event: str, arg: object) -> Any:
        """Decide at a call whether it is one of the test's own; only then its frame is watched."""
        if event != "call" or self.kind(frame.f_code) != "package":
            return None
        if frame in self.running:  # a generator goes on
            self.active = self.active or frame
            return self.inside
        if self.active is not None or len(self.noted) >= _CALLS or frame.f_code.co_flags & _COROUTINE:
            return None
        caller = frame.f_back
        while caller is not None and self.kind(caller.f_code) == "other":
            caller = caller.f_back
        if caller is None or self.kind(caller.f_code) != "test":
            return None
        self.active = frame
        self.raised = None
        try:
            note = self.objects.call(frame)
        except Exception:  # somebody's repr or hash: the test must not see it
            note = None
        if note is not None:
            self.running[frame] = note
            self.noted.append(note)
        frame.f_trace_lines = False
        return self.inside

    def inside(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "exception":
            kind, value, _ = arg
            self.raised = (kind.__name__, _message(value))
        elif event == "return":
            self.leave(frame, arg)
        return self.inside

    def leave(self, frame: FrameType, value: object) -> None:
        if self.active is frame:
            self.active = None
        note = self.running.get(frame)
        if note is None:
            return
        code = frame.f_code
        real = frame.f_lasti >= 0 and code.co_code[frame.f_lasti] in _RETURNS
        yielded = real and bool(code.co_flags & _GENERATOR) and code.co_code[frame.f_lasti] == dis.opmap["YIELD_VALUE"]
        if yielded:
            items = note.setdefault("result", ["items", []])
            if items[0] == "items" and len(items[1]) < _ITEMS:
                items[1].append(self.objects.show(value)[0])
            return
        del self.running[frame]
        if not real:
            note["result"] = ["error", *(self.raised or ("Exception", ""))]
        elif code.co_flags & _GENERATOR:
            note.setdefault("result", ["items", []])
        else:
            try:
                note["result"] = self.objects.result(note, value)
            except Exception:
                note["result"] = ["object", type(value).__name__]

    # --- what went wrong

    def failure(self, excinfo: Any, compared: list[str] | None) -> dict[str, Any]:
        """Return the error of a failed test, with the two values that it compared, where it compared two."""
        frames = []
        tb = excinfo.tb
        while tb is not None:
            frames.append((tb.tb_frame, tb.tb_lineno))
            tb = tb.tb_next
        out: dict[str, Any] = {"type": excinfo.type.__name__, "message": _message(excinfo.value), "compared": compared}
        for frame, _ in frames:
            found = frame.f_locals
            if frame.f_code.co_name in ("assertEqual", "assertNotEqual") and "first" in found and "second" in found:
                op = "==" if frame.f_code.co_name == "assertEqual" else "!="
                out["compared"] = [op, self.shown(found["first"]), self.shown(found["second"])]
        own = [(f, n) for f, n in frames if self.kind(f.f_code) == "test"]
        if own:
            frame, line = own[-1]
            out["statement"] = swe_statement.statement(frame, line, self.objects)
        return out


def _message(value: BaseException) -> str:
    try:
        text = str(value.args[0]) if isinstance(value, KeyError) and value.args else str(value)
    except Exception:
        return ""
    return text.split("\n")[0][:200]
