"""Kind + name → object: listing imports nothing, options are checked against the signature."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from agentgym import registry
from agentgym.errors import ConfigError, RegistryError


def with_options(
    a: int, b: int, *, flag: bool = False, rate: float = 0.5, kind: Literal["x", "y"] = "x", pair: tuple[float, float] = (0.0, 1.0)
) -> str:
    """Say what it got."""
    return f"{a} {b} {flag} {rate} {kind} {pair}"


def demanding(x: int, *, must: str, state: dict[str, int]) -> str:
    """Need something."""
    return must


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_local", {("credit", "with_options"): with_options, ("credit", "demanding"): demanding})


def test_names_say_what_each_is_and_import_nothing() -> None:
    found = registry.names("credit")
    assert {"grpo", "gigpo", "rloo", "with_options"} <= set(found)
    assert found["gigpo"].startswith("GiGPO") and found["with_options"] == "Say what it got."
    code = (
        "import sys; from agentgym import registry\n"
        "n = sum(len(registry.names(k)) for k in registry.KINDS)\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers') or m.startswith('agentgym.trainers.')]\n"
        "print(n, bad)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(" ", 1)
    assert int(out[0]) > 20 and out[1].strip() == "[]"


def test_a_name_is_a_file_is_a_function() -> None:
    assert registry.find("credit", "gigpo").__name__ == "gigpo"
    assert registry.find("context", "window").__module__ == "agentgym.context"
    assert registry.find("credit", "with_options") is with_options


def test_unknown_names_get_help() -> None:
    with pytest.raises(RegistryError, match=r"no credit named 'gigop'\. Did you mean 'gigpo'.*Known: .*grpo.*Your own: write 'package.module:gigop'"):
        registry.find("credit", "gigop")
    with pytest.raises(RegistryError, match=r"no plug-in kind 'credits'\. Did you mean 'credit'.*Kinds: env,"):
        registry.find("credits", "gigpo")
    with pytest.raises(RegistryError, match="no plug-in kind"):
        registry.names("nope")


def test_objects_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def idea(x, *, k=1):\n    return x * k\n")
    assert registry.bind("credit", f"{file}:idea", {"k": 3})(2) == 6
    assert registry.find("credit", f"{file}:idea") is registry.find("credit", f"{file}:idea")  # loaded once
    assert registry.find("env", "agentgym.envs.toy:toy").__name__ == "toy"
    with pytest.raises(RegistryError, match=r"has no 'ide'\. Did you mean 'idea'"):
        registry.find("credit", f"{file}:ide")
    with pytest.raises(RegistryError, match=r"nothere\.py does not exist"):
        registry.find("credit", f"{tmp_path}/nothere.py:idea")
    with pytest.raises(RegistryError, match=r"cannot import 'no.such'"):
        registry.find("credit", "no.such:thing")


def test_a_file_that_fails_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise ValueError('half-way')\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="half-way"):
            registry.find("credit", f"{file}:x")
    file.write_text("x = 1\n")
    assert registry.find("credit", f"{file}:x") == 1


def test_a_file_that_does_not_define_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lab_ideas"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text('"""The first idea."""\ndef two(): ...\n')
    (package / "_helper.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_homes", lambda kind: ("lab_ideas",))
    assert registry.names("credit") == {"one": "The first idea.", "with_options": "Say what it got.", "demanding": "Need something."}
    with pytest.raises(RegistryError, match=r"lab_ideas/one\.py does not define 'one'"):
        registry.find("credit", "one")


def test_a_missing_package_of_a_third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_homes", lambda kind: ("gone_package.credit",))
    with pytest.raises(RegistryError, match=r"gone_package.*reinstall"):
        registry.names("credit")


def test_options_are_the_keywords() -> None:
    assert list(registry.options_of(with_options)) == ["flag", "rate", "kind", "pair"]
    assert registry.columns_of(with_options) == ["a", "b"]
    bound = registry.bind("credit", "with_options", {"rate": 1, "pair": [2, 3]})
    assert bound(1, 2) == "1 2 False 1.0 x (2.0, 3.0)"  # an int is taken for a float, a list for a tuple


@pytest.mark.parametrize(
    "options, message",
    [
        ({"flg": True}, r"credit 'with_options' has no option 'flg'\. Did you mean 'flag'\? Options: flag, rate, kind, pair"),
        ({"flag": 1}, r"credit\.with_options\.flag: got 1 \(int\), expected bool"),
        ({"flag": "true"}, "expected bool"),
        ({"rate": "0.5"}, "expected float"),
        ({"rate": None}, r"got None \(NoneType\)"),
        ({"kind": "z"}, r"got 'z' \(str\), expected .*'x', 'y'"),
        ({"pair": [1.0]}, "pair"),
        ({"a": 3}, "has no option 'a'"),  # data is no option
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.bind("credit", "with_options", options)


def test_what_the_loop_supplies_is_no_option() -> None:
    with pytest.raises(ConfigError, match="needs the option 'must'"):
        registry.bind("credit", "demanding")
    with pytest.raises(ConfigError, match="has no option 'state'"):
        registry.bind("credit", "demanding", {"must": "x", "state": {}})
    with pytest.raises(ConfigError, match="has no option 'size'"):
        registry.bind("explore", "independent", {"size": 3})


def test_fit_converts_nothing_else() -> None:
    assert registry.fit(3, float, "x") == 3.0 and registry.fit(None, int | None, "x") is None
    for value, hint in ((True, int), ("3", int), (3.5, int), (1, str), (3, list[int])):
        with pytest.raises(ConfigError, match="x: got"):
            registry.fit(value, hint, "x")


def test_names_are_listed_beside_threads_that_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 may raise SystemError from ast.parse when another thread parses too: it is tried again, and only that."""
    real, calls = ast.parse, []

    def parse(text: str) -> ast.Module:
        calls.append(text)
        if len(calls) <= 2:
            raise SystemError("AST constructor recursion depth mismatch")
        return real(text)

    monkeypatch.setattr(ast, "parse", parse)
    assert {"hermes", "tags"} <= set(registry.names("format")) and len(calls) > 2

    def broken(text: str) -> ast.Module:
        raise SystemError("always")

    monkeypatch.setattr(ast, "parse", broken)
    with pytest.raises(SystemError, match="always"):
        registry.names("format")


def test_a_file_that_is_loaded_in_many_threads_is_whole_in_each(tmp_path: Path) -> None:
    import threading

    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.2)\ndef mine(outcome): ...\n")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(registry.find("credit", f"{tmp_path}/slow.py:mine"))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4 and len(set(map(id, found))) == 1
