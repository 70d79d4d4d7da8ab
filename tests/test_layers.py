"""The rules about who may know whom: imports point one way, the loops know no method, one name is one file is one object."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentgym
from agentgym import registry
from agentgym.registry import parse

ROOT = Path(agentgym.__file__).resolve().parents[1]
CORE, ENVS, TRAINERS = (sorted((ROOT / d).rglob("*.py")) for d in ("agentgym", "envs", "trainers"))
HEAVY = ("torch", "transformers", "safetensors", "peft", "tokenizers")
LOOPS = ("train.py", "update.py")
METHODS = ("credit", "weight", "objective", "reduce", "sampler", "explore", "reward", "optimizer", "teacher", "critic", "merge", "gradient")


def imports(file: Path, *, top_level: bool = False) -> Iterator[str]:
    """Yield the full names of the modules that a file imports, relative ones resolved against the import path of its folder."""
    inside = file.relative_to(ROOT).parent.parts
    package = ["agentgym", *inside] if inside[0] in ("envs", "trainers") else list(inside)
    tree = parse(file)
    skipped = {n for c in ast.walk(tree) if isinstance(c, ast.If) and "TYPE_CHECKING" in ast.unparse(c.test) for n in ast.walk(c)}
    for node in tree.body if top_level else ast.walk(tree):
        if node in skipped and top_level:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{a.name}" for a in node.names)


def within(module: str, *packages: str) -> bool:
    return any(module == p or module.startswith(p + ".") for p in packages)


def test_there_is_something_to_look_at() -> None:
    assert len(CORE) > 10 and len(ENVS) > 5 and len(TRAINERS) > 30
    assert "agentgym.trainers.batch" in set(imports(ROOT / "trainers/update.py"))


def test_nobody_imports_a_second_copy() -> None:
    everywhere = [*CORE, *ENVS, *TRAINERS, *(ROOT / "tests").rglob("*.py")]
    found = [(str(f), m) for f in everywhere for m in imports(f) if within(m, "envs", "trainers", "tasks")]
    assert not found, "import agentgym.envs… and agentgym.trainers…: the folders' own names would load a second copy"


def test_the_core_imports_neither_environments_nor_trainers_nor_torch() -> None:
    # The command line starts trainers, inside its commands; nothing else of the core may know them.
    found = [(f.name, m) for f in CORE for m in imports(f) if within(m, "agentgym.envs", "agentgym.trainers") and f.name != "cli.py"]
    assert not found
    assert not [(f.name, m) for f in CORE for m in imports(f, top_level=True) if within(m, "agentgym.envs", "agentgym.trainers", *HEAVY)]


def test_environments_import_the_core_only() -> None:
    for file in ENVS:
        own = f"agentgym.envs.{file.relative_to(ROOT / 'envs').parts[0].removesuffix('.py')}"
        bad = [m for m in imports(file) if within(m, "agentgym.trainers", *HEAVY)]
        others = [m for m in imports(file) if m.startswith("agentgym.envs.") and not within(m, own)]
        assert not bad and not others, file


def test_trainers_meet_environments_by_name_only() -> None:
    assert not [(f.name, m) for f in TRAINERS for m in imports(f) if within(m, "agentgym.envs")]


def test_importing_the_whole_core_leaves_torch_out() -> None:
    modules = [f"agentgym.{f.stem}" for f in CORE if f.parent == ROOT / "agentgym" and f.stem not in ("__init__", "__main__")]
    code = f"import importlib, sys\nfor m in {modules}: importlib.import_module(m)\nprint([m for m in {HEAVY} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loops_know_no_method(loop: str) -> None:
    """Not even in a comment; a word that is also a part of the loop itself (`steps`, `success`) may stand in code, but not as a value."""
    text = (ROOT / "trainers" / loop).read_text("utf-8")
    tree = parse(ROOT / "trainers" / loop)
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    known = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    columns = {"entropy", "success", "steps", "clip"}  # words of the batch, of the metrics, and of `clip_norm`
    for kind in METHODS:
        for name in registry.names(kind):
            if name not in columns:
                assert not re.search(rf"\b{name}\b", text), f"{loop} names the {kind} {name!r}"
                assert name not in known | strings
    for comparison in (n for n in ast.walk(tree) if isinstance(n, ast.Compare)):
        assert not re.search(r"\.name\b.*==|==.*\.name\b", ast.unparse(comparison)), ast.unparse(comparison)


PLUGINS = [(k, n) for k in registry.KINDS for n in registry.names(k)]


@pytest.mark.parametrize("kind, name", PLUGINS, ids=[f"{k}-{n}" for k, n in PLUGINS])
def test_one_name_is_one_file_is_one_object(kind: str, name: str) -> None:
    """A plug-in file defines its name at the top; only helpers with an underscore may stand beside it."""
    folder = ROOT / "trainers" / kind
    if not folder.is_dir():  # env: a folder each; context and action: one module of functions
        return
    tree = parse(folder / f"{name}.py")
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)]
    assert name in defined
    assert ast.get_docstring(tree), f"{kind}/{name}.py: its docstring's first line is what `agentgym list` shows"


def test_every_plugin_has_a_test_that_names_it() -> None:
    tests = "\n".join(f.read_text("utf-8") for f in (ROOT / "tests").rglob("test_*.py"))
    missing = [f"{k}/{n}" for k, n in PLUGINS if not re.search(rf"\b{n}\b", tests)]
    assert not missing


def test_the_package_list_is_complete() -> None:
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"])
    core = {".".join(f.parent.relative_to(ROOT).parts) for f in CORE if f.name == "__init__.py"}
    here = core | {".".join(["agentgym", *f.parent.relative_to(ROOT).parts]) for f in [*ENVS, *TRAINERS] if f.name == "__init__.py"}
    assert here | {"agentgym.tasks"} == listed
