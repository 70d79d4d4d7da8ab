"""The files and `a.b=value` overrides of a configuration, as plain maps; what they mean is decided in config.py."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigError, did_you_mean


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file, interpolations resolved. Raises ConfigError with the line of a syntax error."""
    from omegaconf import OmegaConf

    p = find_file(str(path), "tasks", "recipes", "scale")
    with _yaml_errors(str(p)):
        return _beside(OmegaConf.to_container(OmegaConf.load(p), resolve=True), p.resolve().parent)


def _beside(value: Any, folder: Path) -> Any:
    """Make `./file` and `./file.py:Name` absolute where the file lies beside the YAML file; anything else stays as it is."""
    if isinstance(value, Mapping):
        return {k: _beside(v, folder) for k, v in value.items()}
    if isinstance(value, list):
        return [_beside(v, folder) for v in value]
    if isinstance(value, str) and value.startswith(("./", "../")):
        file, colon, name = value.partition(".py:")
        there = folder / (file + ".py" if colon else file)
        if there.exists():
            return f"{there.resolve()}{':' + name if colon else ''}"
    return value


@contextlib.contextmanager
def _yaml_errors(source: str) -> Iterator[None]:
    """Turn what YAML and OmegaConf raise into a ConfigError that names the place."""
    import yaml
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{source}{line}: not valid YAML ({getattr(e, 'problem', e)})") from None
    except (OmegaConfBaseException, OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{source}: {str(e).splitlines()[0]}") from None


def find_file(name: str, *kinds: str) -> Path:
    """Return the YAML file `name`: a path, or the bare name of a bundled task set ("tasks") or recipe ("recipes")."""
    p = Path(name).expanduser()
    if p.is_file():
        return p
    bundled = {f.stem: f for kind in reversed(kinds) for f in sorted(_folder(kind).glob("*.yaml"))}
    if name in bundled:
        return bundled[name]
    known = "; ".join(f"{kind}: {', '.join(f.stem for f in sorted(_folder(kind).glob('*.yaml'))) or 'none'}" for kind in kinds)
    close = did_you_mean(name, [*bundled, *(str(f) for f in p.parent.glob("*.yaml"))])
    raise ConfigError(f"there is no file {name!r}, and nothing bundled has that name.{close} Bundled {known}")


def _folder(kind: str) -> Path:
    from importlib.util import find_spec

    spec = find_spec({"tasks": "agentgym.tasks", "recipes": "agentgym.trainers.recipes", "scale": "agentgym.trainers.scale"}[kind])
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else Path(kind)


def read_override(text: str) -> dict[str, Any]:
    """Read `a.b=value`, the value as YAML, into nested maps. Raises ConfigError."""
    from omegaconf import OmegaConf

    key, eq, _ = text.partition("=")
    if not eq or not all(key.split(".")):
        raise ConfigError(f"override {text!r}: expected key=value, e.g. credit.step_weight=0.5")
    with _yaml_errors(f"override {text!r}"):
        return typing.cast(dict[str, Any], OmegaConf.to_container(OmegaConf.from_dotlist([text]), resolve=True))
