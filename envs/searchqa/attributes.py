"""What can be asked about a country: ten attributes, how each is read out of the World Factbook's text, and its wordings."""

from __future__ import annotations

import functools
import html
import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One clean value of one attribute: `value` as the document shows it, other right spellings, what stands in brackets."""

    value: str
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def answers(self) -> tuple[str, ...]:
        """The right answers, the one that can be copied from the document first."""
        return tuple(dict.fromkeys((self.value, *self.aliases)))


@dataclass(frozen=True)
class Attribute:
    """What can be asked about a country."""

    name: str
    label: str  # its line in a document reads `label of Country: value (note)`
    path: tuple[str, ...]  # where the package keeps it: section, field group, field (none where the group is one text)
    page: str  # the title of its document, after the country
    read: Callable[[str], Fact | None]  # None: not one short value, so no question about it
    ask: tuple[str, ...]  # {}: a country, or words that describe one
    describe: tuple[str, ...]  # the country with this value; {}: the value
    which: tuple[str, ...]  # the question for the country itself

    @property
    def group(self) -> tuple[str, str]:
        """Section and field group."""
        return self.path[0], self.path[1]

    @property
    def field(self) -> str:
        """The field within the group, '' where the group is one text."""
        return self.path[2] if len(self.path) > 2 else ""


_STRAIGHT = str.maketrans("“”‘’", "\"\"''", "\u200b\xad")  # quotes; invisible characters go


def plain(text: str) -> str:
    """Return one line of text: no HTML, no entities, straight quotes, single blanks."""
    text = html.unescape(html.unescape(text))  # some entities are escaped twice
    text = re.sub(r"<\s*(br|/?p|/?li|/?ul)\b[^>]*>", " ", text)
    text = re.sub(r"<[^>]*>", "", text)
    return " ".join(text.translate(_STRAIGHT).split())


def fold(text: str) -> str:
    """Return `text` without accents."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


@functools.lru_cache(maxsize=1 << 10)
def slug(text: str) -> str:
    """Return `text` in lower-case ASCII letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", fold(text).lower().replace("'", "")).strip("-")


_NO_NAME = re.compile(r"\b(none|note|unnamed|unknown|and|or|location|junction|various|between|near|within|than|was|in)\b")


def _fact(value: str, note: str = "", aliases: tuple[str, ...] = (), longest: int = 7, title: bool = False) -> Fact | None:
    """Return the fact, or None where `value` is no short name (a `title` may hold any words).

    A long note would only make the line long. Brackets in a value would end it early for who copies it.
    """
    value = value.strip(string.whitespace + ",;:")
    if not value or re.search(r"[();:\[\]]", value) or (not title and _NO_NAME.search(value)) or len(value.split()) > longest:
        return None
    others = (*aliases, *(fold(name) for name in (value, *aliases)))
    return Fact(value, tuple(dict.fromkeys(name for name in others if name and name != value)), note if len(note.split()) <= 8 else "")


def _capital(text: str) -> Fact | None:
    found = re.fullmatch(r"([^();]+?)(?: \(([^()]*)\))?", text)
    if found is None:
        return None
    value, note = found[1], found[2] or ""
    aliases = (value.split(",")[0],) if "," in value else ()
    native = (note,) if re.fullmatch(r"[A-Z][\w'-]+( [A-Z][\w'-]+)*", note) else ()
    return _fact(value, note, aliases + native)


def _currency(text: str) -> Fact | None:
    found = re.match(r"([^(]+) \(([A-Z]{2,4})\) per US dollar", text)
    if found is None:
        return None
    singular = re.sub(r"(?<=[^s])s$", "", found[1])
    return _fact(found[1], found[2], (singular,))


def _anthem(text: str) -> Fact | None:
    found = re.fullmatch(r'"([^"]+?),?"(?: \(([^"()]*)\))?', text)
    if found is None:
        return None
    note = found[2] or ""
    translation = (note,) if note and "anthem" not in note.lower() else ()  # "National Anthem" would be right for too many
    return _fact(found[1], note, translation, longest=10, title=True)


def _point(text: str) -> Fact | None:
    """Read `Name (remark) 4,095 m`: the height goes into the brackets."""
    found = re.match(r"([^()\d;]+?),?(?: \(([^()]*)\))? (-?[\d,]*\d(?:\.\d+)?)(?: m\b|$)", text)
    if found is None or "," in found[1] or found[1].count("/") > 1 or "Oceans" in found[1]:
        return None
    remark = found[2] or ""
    second = (remark,) if re.fullmatch(r"(?!highest|lowest|South Georgia)[A-Z][\w' -]+", remark) else ()
    return _fact(found[1], f"{found[3]} m", (*second, *(found[1].split("/") if "/" in found[1] else ())))


def _code(text: str) -> Fact | None:
    return _fact(text) if re.fullmatch(r"\.[a-z]{2,3}", text) else None


def _symbol(text: str) -> Fact | None:
    found = re.fullmatch(r"([^(),;]+?)(?: \(([^()]*)\))?", text)
    if found is None:
        return None
    note = found[2] or ""
    return _fact(re.sub(r"^(a|an|the) ", "", found[1]), note, longest=5)


def _citizen(text: str) -> Fact | None:
    found = re.fullmatch(r"([A-Z][\w' -]+?)(\(s\))?(?: \(singular and plural\))?", text)
    return found and _fact(found[1], "", (f"{found[1]}s",) if found[2] else ())


def _independence(text: str) -> Fact | None:
    """Read `31 August 1957 (from the UK)`; where a field lists several dates, no single one is right."""
    found = re.fullmatch(r"(\d{1,2}) ([A-Z][a-z]+) (\d{4}) \(([^();]*)\)", text)
    if found is None:
        return None
    day, month, year, note = found.groups()
    return _fact(f"{day} {month} {year}", note, (f"{month} {day}, {year}",))


def borders(text: str) -> dict[str, float]:
    """Return neighbour → length in km of `Brunei 266 km; Indonesia 1,881 km`; several stretches with one country are added."""
    out: dict[str, float] = {}
    for name, number in re.findall(r"([^;,\d()]+?)(?: \([^)]*\))? ([\d,]*\d(?:\.\d+)?) km", text):
        name = re.sub(r"^\s*(and )?", "", name).strip()
        out[name] = out.get(name, 0.0) + float(number.replace(",", ""))
    return out


def _border(text: str) -> Fact | None:
    """Return the neighbour with the longest border, or None where two share the first place."""
    ranked = sorted(borders(text).items(), key=lambda item: -item[1])
    if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
        return None
    name, length = ranked[0]
    return Fact(name, (), f"{length:,.0f} km")


def _attribute(
    name: str,
    path: str,
    read: Callable[[str], Fact | None],
    *,
    label: str = "",
    page: str = "",
    more: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    which: tuple[str, ...] = (),
) -> Attribute:
    """Return an attribute that is called by its name in every wording; `more` adds questions, `ask` and `which` replace them."""
    label = label or name.replace("_", " ").capitalize()
    noun = label[0].lower() + label[1:]
    return Attribute(
        name,
        label,
        tuple(path.split(" / ")),
        page or label,
        read,
        (*(ask or (f"What is the {noun} of {{}}?", f"Name the {noun} of {{}}.")), *more),
        (f"the country whose {noun} is {{}}", f"the country with the {noun} {{}}"),
        which or (f"Which country has the {noun} {{}}?", f"{{}} is the {noun} of which country?"),
    )


BORDER = (  # how a neighbour is described
    "the neighbour that has the longest border with {}",
    "the country with the longest border with {}",
)

ATTRIBUTES = {
    attribute.name: attribute
    for attribute in (
        _attribute("capital", "Government / Capital / name", _capital, more=("Which city is the capital of {}?",)),
        _attribute("currency", "Economy / Exchange rates / Currency", _currency, more=("Which currency is used in {}?",)),
        _attribute("anthem", "Government / National anthem(s) / title", _anthem, label="National anthem"),
        _attribute("highest_point", "Geography / Elevation / highest point", _point, page="Elevation", more=("What is the highest place in {}?",)),
        _attribute("lowest_point", "Geography / Elevation / lowest point", _point, page="Elevation", more=("What is the lowest place in {}?",)),
        _attribute("internet_code", "Communications / Internet country code", _code, label="Internet country code"),
        _attribute("symbol", "Government / National symbol(s)", _symbol, label="National symbol"),
        # Not "nationality": its stem is that of "national", which other documents are full of.
        _attribute(
            "citizen",
            "People and Society / Nationality / noun",
            _citizen,
            label="Citizen name",
            ask=("What is a citizen of {} called?", "What is the name for a citizen of {}?"),
        ),
        _attribute(
            "independence",
            "Government / Independence",
            _independence,
            label="Independence date",
            more=("On what date did {} become independent?",),
            which=("Which country became independent on {}?", "{} is the independence date of which country?"),
        ),
        _attribute(
            "border",
            "Geography / Land boundaries / border countries",
            _border,
            label="Longest border",
            ask=("Which country has the longest border with {}?", "Name the neighbour that has the longest border with {}."),
        ),
    )
}
