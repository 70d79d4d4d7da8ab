"""Kind + name → object. One name = one file = one function: `credit: gigpo` is the function `gigpo` in `credit/gigpo.py`.

A kind is an entry-point group `agentgym.<kind>`; every entry point names a package (one file per plug-in) or a module (one attribute
per plug-in). Listing names imports nothing. `lab.ideas:mine` and `./my_file.py:mine` name an object directly.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pickle
import sys
import threading
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigError, RegistryError, did_you_mean

KINDS = (
    "env context action format policy explore reward sampler teacher critic credit weight objective reduce gradient optimizer merge logger cluster"
).split()

# Keyword parameters that the loop itself hands over: no options.
SUPPLIED = {"explore": {"size"}}

_loading = threading.RLock()  # nobody may see a module that another thread is still loading

_local: dict[tuple[str, str], Any] = {}  # names given at run time by `agentgym.register`


def add(kind: str, name: str, target: Any) -> None:
    """Register `target` (an object, or "module:attr") under `kind` and `name` in this process."""
    _local[kind, name] = target


def local_name(kind: str, name: str) -> bytes:
    """Return what was registered at run time under a name, for another process; a class of a script or notebook travels by value."""
    import cloudpickle

    return bytes(cloudpickle.dumps({(kind, name): _local[kind, name]} if (kind, name) in _local else {}))


def add_pickled(pickled: bytes) -> None:
    """Register here what `local_name` gave in another process."""
    _local.update(pickle.loads(pickled))


@functools.cache
def _homes(kind: str) -> tuple[str, ...]:
    """Return the packages and modules that hold plug-ins of `kind`, ours first."""
    found = {e.value for e in importlib.metadata.entry_points(group=f"agentgym.{kind}")}
    return tuple(sorted(found, key=lambda m: (not m.startswith("agentgym."), m)))


def _files(home: str) -> dict[str, Path] | None:
    """Return name → file of a plug-in package, or None when `home` is a single module."""
    try:
        spec = importlib.util.find_spec(home)
    except ModuleNotFoundError as e:
        raise RegistryError(f"the plug-in package {home!r} cannot be imported: {e}; reinstall the package that names it") from e
    if spec is None:
        raise RegistryError(f"the plug-in package {home!r} does not exist; reinstall the package that names it")
    if not spec.submodule_search_locations:
        return None
    out: dict[str, Path] = {}
    for folder in spec.submodule_search_locations:
        for p in sorted(Path(folder).glob("*")):
            if p.name.startswith(("_", ".")):
                continue
            if p.suffix == ".py":
                out.setdefault(p.stem, p)
            elif (p / "__init__.py").exists():
                out.setdefault(p.name, p / "__init__.py")
    return out


def parse(file: Path) -> ast.Module:
    """Parse a file; again where CPython 3.11 counts its recursion wrongly, which it does when another thread parses too (a SystemError)."""
    text = file.read_text("utf-8")
    for _ in range(5):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _public(home: str) -> dict[str, str]:
    """Return name → first docstring line of the public functions and classes of a module, read without importing it."""
    spec = importlib.util.find_spec(home)
    tree = parse(Path(spec.origin)) if spec and spec.origin else ast.Module([], [])
    given = [n.value for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__plugins__"]
    wanted = ast.literal_eval(given[0]) if given else None
    defs = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return {n: _first_line(ast.get_docstring(d)) for n, d in defs.items() if (n in wanted if wanted is not None else not n.startswith("_"))}


def _first_line(doc: str | None) -> str:
    return doc.strip().splitlines()[0] if doc else ""


def places(home: str) -> dict[str, str]:
    """Return name → "module:attr" of what a plug-in package or module offers, {} when it is broken; imports no plug-in."""
    try:
        files = _files(home)
        found = _public(home) if files is None else files
    except (RegistryError, SyntaxError, OSError):
        return {}
    return {name: f"{home}:{name}" if files is None else f"{home}.{name}:{name}" for name in found}


def names(kind: str) -> dict[str, str]:
    """Return every name of `kind` with its one-line description; imports no plug-in."""
    _check_kind(kind)
    out: dict[str, str] = {}
    for home in _homes(kind):
        files = _files(home)
        if files is None:
            found = _public(home)
        else:
            found = {n: _first_line(ast.get_docstring(parse(p))) for n, p in files.items()}
        for n, line in found.items():
            out.setdefault(n, line)
    for (k, n), target in _local.items():
        if k == kind:
            inner = target.func if isinstance(target, functools.partial) else target
            out[n] = _first_line(inspect.getdoc(inner)) if not isinstance(target, str) else target
    return out


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise RegistryError(f"there is no plug-in kind {kind!r}.{did_you_mean(kind, KINDS)} Kinds: {', '.join(KINDS)}")


def find(kind: str, name: str) -> Any:
    """Return the object that `name` means for `kind`: a registered name, `module:attr`, or `./file.py:attr`."""
    _check_kind(kind)
    if (kind, name) in _local:
        target = _local[kind, name]
        return _by_path(kind, target) if isinstance(target, str) else target
    if ":" in name:
        return _by_path(kind, name)
    for home in _homes(kind):
        files = _files(home)
        if files is None:
            if name in _public(home):
                return getattr(importlib.import_module(home), name)
        elif name in files:
            module = importlib.import_module(f"{home}.{name}")
            if not hasattr(module, name):
                raise RegistryError(f"{home}/{name}.py does not define {name!r}: a plug-in's file and function carry the same name")
            return getattr(module, name)
    known = names(kind)
    raise RegistryError(
        f"there is no {kind} named {name!r}.{did_you_mean(name, known)} Known: {', '.join(sorted(known)) or 'none'}. "
        f"Your own: write 'package.module:{name}' or './file.py:{name}'."
    )


def _by_path(kind: str, target: str) -> Any:
    where, _, attr = target.rpartition(":")
    if where.endswith(".py"):
        module = _load_file(Path(where).expanduser().resolve())
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as e:
            raise RegistryError(f"{kind} {target!r}: cannot import {where!r} ({e}). Is it installed, or in the current folder's packages?") from e
    if not hasattr(module, attr):
        have = [n for n in vars(module) if not n.startswith("_")]
        raise RegistryError(f"{kind} {target!r}: {where} has no {attr!r}.{did_you_mean(attr, have)}")
    return getattr(module, attr)


def _load_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise RegistryError(f"the file {path} does not exist")
    key = f"agentgym_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    with _loading:
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, path)
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            sys.modules[key] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[key]
                raise
        return sys.modules[key]


def options_of(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters of a plug-in: its options."""
    return {n: p for n, p in inspect.signature(target).parameters.items() if p.kind is p.KEYWORD_ONLY}


def columns_of(target: Callable[..., Any]) -> list[str]:
    """Return the positional parameters of a plug-in: the data it reads."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [n for n, p in inspect.signature(target).parameters.items() if p.kind in kinds]


def needs_model(policy: str) -> bool:
    """Return whether a policy acts with a model's weights: its constructor takes (model, renderer); one that works on text takes nothing."""
    return bool(columns_of(find("policy", policy)))


def check_options(kind: str, name: str, target: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Check `options` against the signature of `target` (names and types) and return them, with ints widened to floats where asked."""
    supplied = {"state"} | SUPPLIED.get(kind, set())
    allowed = {n: p for n, p in options_of(target).items() if n not in supplied}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(target).parameters.values())
    unknown = [o for o in options if o not in allowed]
    if unknown and not takes_any:
        raise ConfigError(f"{kind} {name!r} has no option {unknown[0]!r}.{did_you_mean(unknown[0], allowed)} Options: {', '.join(allowed) or 'none'}")
    missing = [n for n, p in allowed.items() if p.default is p.empty and n not in options]
    if missing:
        raise ConfigError(f"{kind} {name!r} needs the option {missing[0]!r}")
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {o: fit(v, hints.get(o, Any), f"{kind}.{name}.{o}") for o, v in options.items()}


def fit(value: Any, hint: Any, where: str) -> Any:
    """Return `value` as type `hint` or raise ConfigError; an int is taken for a float, a list for a tuple, nothing else is converted."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    if hint is Any:
        return value
    try:
        # JSON mode is strict about bool, int and str but takes a list for a tuple and an int for a float, which is what YAML needs.
        return TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True)).validate_python(_tuples(value, hint))
    except ValidationError as e:
        wanted = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint).replace("typing.", "")
        raise ConfigError(f"{where}: got {value!r} ({type(value).__name__}), expected {wanted} ({e.errors()[0]['msg']})") from None


def _tuples(value: Any, hint: Any) -> Any:
    wants_tuple = any(typing.get_origin(h) is tuple for h in (hint, *typing.get_args(hint)))
    return tuple(value) if isinstance(value, list) and wants_tuple else value


def bind(kind: str, name: str, options: Mapping[str, Any] | None = None) -> functools.partial[Any]:
    """Return the plug-in with its options checked and bound. A class is returned bound too: call it with its positional arguments."""
    target = find(kind, name)
    checked = check_options(kind, name, target, options or {})
    return functools.partial(target, **checked)
