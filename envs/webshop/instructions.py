"""The shopper's instructions of generated products: a grammar of openers, orders and turns of phrase.

A wish names a kind of product, some attributes, and some values of options. Each attribute and value is said before the noun ("a machine washable
shirt"), behind it ("a shirt that is machine washable") or in a second sentence ("it should be machine washable"); how is drawn for each of them.
All is lower-case, without brackets and line breaks; the ceiling of the price is added elsewhere.

Slots: {v} what is said; {a} a or an; {is}, {has}, {comes}, {it}, {them}, {one} in the number of the noun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .words import Attribute, Noun, article, listed
from .words_texts import Draw

OPENERS = listed(
    "i am looking for, i am looking for, i am looking for, i am looking for, i'm looking for, im looking for, i need, i need, i need, "
    "i want, i want, i need to find, i need to buy, i need to get, i want to buy, i want to find, i want to get, i want to order, "
    "i would like, i would like, i'd like, id like to buy, i would like to order, i would like to find, i would love to have, find me, "
    "please find me, can you find me, could you find, can you help me find, help me find, please help me find, show me, please show me, "
    "get me, buy me, order me, looking for, searching for, i am searching for, i'm searching for, i am shopping for, i'm shopping for, "
    "i am trying to find, im trying to find, i am hoping to find, i have been looking for, we are looking for, we need, my mother needs, "
    "my son wants, my wife is looking for, my husband needs, my roommate wants, do you have, do you sell, where can i find, "
    "i am interested in, im interested in, i am in need of, i'm in the market for, i could use, i was hoping to get, i think i need, "
    "today i want to buy, hello i need, hi i am looking for, hey can you find me, i have to replace my old one with, search for, look for, "
    "shop for, give me, i wish to buy, i will take, i plan to buy, it is time to buy, i really need, i just need, could you get me"
)
COUNTS = {
    "one": ("{a} ",) * 10 + ("one ", "a good "),
    "many": ("some ", "some ", "", "", "new "),
    "pair": ("some ", "", "{a} pair of ", "{a} pair of ", "one pair of "),
    "mass": ("some ", "some ", "", "{a} "),
}
WHO = {"before": ("{v}'s ", "{v}s "), "behind": (" for {v}", " for {v}")}
ATTRIBUTES = {
    "is": {
        "before": ("{v} ",),
        "behind": (" that {is} {v}", " which {is} {v}", " that {is} {v}"),
        "later": (
            "{it} should be {v}", "{it} must be {v}", "make sure {it} {is} {v}", "i want {them} to be {v}", "preferably {v}", "ideally {it} {is} {v}",
            "i need {them} to be {v}", "only {v} please", "{it} would have to be {v}",
        ),
    },
    "has": {
        "before": ("{v} ",),
        "behind": (" with {v}", " with {v}", " that {has} {v}", " that {comes} with {v}", " featuring {v}", " having {v}"),
        "later": (
            "{it} should have {v}", "{it} must have {v}", "i want {one} with {v}", "make sure {it} {has} {v}", "{it} should come with {v}",
            "i would like {them} to have {v}", "{v} would be nice",
        ),
    },
    "of": {
        "before": ("{v} ",),
        "behind": (" made of {v}", " made from {v}", " of {v}", " that {is} made of {v}", " in {v}"),
        "later": ("{it} should be made of {v}", "i want {one} made of {v}", "make sure {it} {is} made of {v}", "the material should be {v}"),
    },
    "for": {
        "before": ("{v} ",),
        "behind": (" for {v}", " for {v}", " that {is} good for {v}", " to use for {v}", " suited for {v}"),
        "later": ("{it} {is} for {v}", "i need {them} for {v}", "{it} should be good for {v}", "i want to use {them} for {v}", "good for {v} please"),
    },
}  # fmt: skip
VALUES = {
    "color": {
        "before": ("{v} ", "{v} ", "{v} colored "),
        "behind": (" in {v}", " in {v}", " in {v} color", " in the color {v}", " that {comes} in {v}", " colored {v}"),
        "later": (
            "the color should be {v}", "i want {them} in {v}", "i prefer {v}", "make {them} {v}", "please choose the {v} {one}", "{it} should be {v}",
            "i would like the color {v}", "also choose {v} color", "{v} please",
        ),
    },
    "size": {
        "before": ("{v} ", "size {v} ", "{v} size "),
        "behind": (" in size {v}", " in size {v}", " in {a} size {v}", " size {v}", " of size {v}", " in the {v} size", " that {is} size {v}"),
        "later": (
            "the size should be {v}", "i need size {v}", "i want {them} in size {v}", "size {v} please", "please pick size {v}",
            "i want the {v} size", "my size is {v}",
        ),
    },
    "amount": {
        "before": ("{v} ", "{v} "),
        "behind": (" in the {v} size", " that {is} {v}", " of {v}", " in size {v}", " and i need {v}"),
        "later": ("the size should be {v}", "i need {v}", "please pick the {v} {one}", "i want the {v} size", "get the {v} option"),
    },
    "flavor": {
        "before": ("{v} flavored ", "{v} ", "{v} flavor "),
        "behind": (" in {v} flavor", " with {v} flavor", " that {has} {v} flavor", " in the flavor {v}", " and the flavor is {v}"),
        "later": ("the flavor should be {v}", "i want the {v} flavor", "choose the flavor {v}", "i like {v} best", "make that {v}"),
    },
    "scent": {
        "before": ("{v} scented ", "{v} "),
        "behind": (" with {v} scent", " in the scent {v}", " in {v}", " with {a} scent of {v}"),
        "later": ("the scent should be {v}", "i want the {v} scent", "choose the scent {v}", "i love the scent {v}"),
    },
    "style": {
        "before": ("{v} ", "{v} style "),
        "behind": (" in the {v} style", " in {v} style", " of the style {v}"),
        "later": ("the style should be {v}", "i want the {v} {one}", "choose the style {v}"),
    },
    "fit": {
        "before": ("{v} fit ",),
        "behind": (" in the {v} fit", " with fit type {v}", " in {v} fit"),
        "later": ("the fit type should be {v}", "choose the {v} fit", "i take the {v} fit"),
    },
}  # fmt: skip
LINKS = (". ", ". ", " and ", ", and ", ". also ", ", also ", ". oh and ", " but ")
NEXT = (" and ", ", and ", ". ", ". also ", ", ")
ENDS = ("",) * 12 + (" please", " thanks")
ONE = {"is": "is", "has": "has", "comes": "comes", "it": "it", "them": "it", "one": "one"}
MANY = {"is": "are", "has": "have", "comes": "come", "it": "they", "them": "them", "one": "ones"}
SHORT_OPENERS = listed("i need, i want, find me, show me, get me, buy me, i am looking for, i would like")
_WHERE = ("before", "before", "before", "behind", "behind", "behind", "behind", "later", "later")


def wish(draw: Draw, noun: Noun, who: str, attributes: Sequence[Attribute], options: Sequence[tuple[str, str]], pair: bool = False) -> str:
    """Return an instruction for a product called `noun`.

    who      men, women, kids or "": whom the ware is for
    options  (name, value) of what is to be chosen
    pair     whether a plural noun can be "a pair of"
    """
    said: dict[str, list[tuple[str, Mapping[str, str]]]] = {"before": [], "behind": [], "later": []}
    forms = MANY if noun.number == "many" else ONE
    parts = [(ATTRIBUTES[a.form], a.lead, a.tail, a.form != "for" or not a.name.endswith("s")) for a in attributes if a.form != "noun"]
    parts += [(VALUES[_sort(name, value)], spoken, spoken, True) for name, value in options for spoken in (_spoken(draw, value),)]
    for patterns, lead, tail, may_lead in parts:
        where = draw.pick(_WHERE)
        if where == "before" and (len(said["before"]) == 2 or not may_lead):
            where = "behind"
        said[where].append((draw.pick(patterns[where]), {"v": lead if where == "before" else tail}))
    if who and (where := draw.pick(("before", "before", "behind", ""))):
        said[where].insert(2 if where == "before" else 0, (draw.pick(WHO[where]), {"v": who}))
    name = next((a.tail for a in attributes if a.form == "noun"), noun.text)
    phrase = _filled(said["before"], forms) + name
    count = draw.pick(COUNTS["pair" if pair and noun.number == "many" else noun.number])
    a = "a" if count != "{a} " else article(phrase)
    text = f"{draw.pick(OPENERS)} {count.format(a=a)}{phrase}{_filled(said['behind'], forms)}"
    for k, later in enumerate(draw.some(said["later"], len(said["later"]))):
        text += draw.pick(NEXT if k else LINKS) + _filled([later], forms)
    return text if text.endswith("please") else text + draw.pick(ENDS)


def short_wish(draw: Draw, noun: Noun, attributes: Sequence[Attribute], options: Sequence[tuple[str, str]]) -> str:
    """Return an instruction of at most 16 words, for the small world."""
    colors = [value for name, value in options if name == "color"]
    first = [a.lead for a in attributes[:1]] if draw.random() < 0.5 else []
    phrase = " ".join((*first, *(colors if draw.random() < 0.6 else ()), noun.text))
    rest = attributes[1:] if first else attributes
    text = f"{article(phrase) if noun.number == 'one' else 'some'} {phrase}"
    for k, a in enumerate(rest):
        lead = "" if k and rest[k - 1].form == a.form else _SHORT[a.form].format_map(MANY if noun.number == "many" else ONE)
        text += f"{' and' if k else ''} {lead}{a.tail}"
    left = [(name, value) for name, value in options if name != "color" or f" {value} " not in text]
    opener, chosen = draw.pick(SHORT_OPENERS), "".join(draw.pick((f", {name} {value}", f" in {value}")) for name, value in left)
    if len(f"{opener} {text}{chosen}".split()) > 16:
        opener, chosen = "find", "".join(f", {value}" for _, value in left)
    return f"{opener} {text}{chosen}"


_SHORT = {"is": "that {is} ", "has": "with ", "of": "made of ", "for": "for "}


def _sort(name: str, value: str) -> str:
    """Return which patterns a value is said with."""
    if name == "size" and value[0].isdigit() and any(c.isalpha() for c in value) and not value.endswith(("wide", "-large")):
        return "amount"
    return next(sort for sort in VALUES if sort in name)


def _spoken(draw: Draw, value: str) -> str:
    """Return a value as people type it: "black | red" has many forms."""
    return value.replace(" | ", draw.pick((" and ", " and ", "/", " | ", " with "))) if "|" in value else value


def _filled(patterns: Sequence[tuple[str, Mapping[str, str]]], forms: Mapping[str, str]) -> str:
    return "".join(pattern.format(a="a", **given, **forms) for pattern, given in patterns)
