"""Pages as text, straight from what they show: no HTML is made or parsed. The order and the words are those of the original's pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from .types import Page, Place

BACK, PREV, NEXT, SEARCH, BUY = "Back to Search", "< Prev", "Next >", "Search", "Buy Now"
INFO_BUTTONS = ("Description", "Features", "Reviews")
HOST = "http://127.0.0.1:3000"  # the address that recorded runs have

_PURCHASED = ("attrs", "category", "query", "product category")
_TARGET = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")  # spelt as in the original


class Node(NamedTuple):
    """A visible piece of a page. `kind`: text, button, product, or option; `on`: it was clicked."""

    text: str
    kind: str = "text"
    on: bool = False


def nodes(page: Page) -> list[Node]:
    """Return the visible pieces of a page in document order; empty ones and bare line breaks are not visible."""
    return [n for n in _PAGES[page.place.kind](page) if n.text and n.text != "\n"]


def _index(page: Page) -> Iterator[Node]:
    yield Node("WebShop")
    yield Node("Instruction: ")
    yield Node(page.instruction)
    yield Node(SEARCH, "button")


def _head(page: Page) -> Iterator[Node]:
    yield Node("Instruction:")
    yield Node(page.instruction)
    yield Node(BACK, "button")


def _results(page: Page) -> Iterator[Node]:
    yield from _head(page)
    yield Node(f"Page {page.place.page} (Total results: {page.total})")
    if page.place.page > 1:
        yield Node(PREV, "button")
    yield Node(NEXT, "button")
    for product in page.shown:
        yield Node(product.asin, "product", product.asin in page.visited)
        yield Node(product.name)
        yield Node(product.price_text)


def _item(page: Page) -> Iterator[Node]:
    product = page.product
    assert product is not None
    # As the original does: a value shows as clicked if the address has it in quotes. One with a quote or a letter beyond ASCII is escaped there,
    # and never does; one that two options have in common does for both.
    chosen = json.dumps(dict(page.place.options))
    yield from _head(page)
    yield Node(PREV, "button")
    for name, values in product.options.items():
        yield Node(name)
        for value in values:
            yield Node(value, "option", f'"{value}"' in chosen)
    yield Node(product.name)
    yield Node(f"Price: {product.price_text}")
    yield Node("Rating: N.A.")
    for name in INFO_BUTTONS:
        yield Node(name, "button")
    yield Node(BUY, "button")


def _sub(page: Page) -> Iterator[Node]:
    assert page.product is not None
    yield from _head(page)
    yield Node(PREV, "button")
    if page.place.sub == "Description":
        yield Node(page.product.description)
    elif page.place.sub == "Features":
        for bullet in page.product.bullets:
            yield Node(f" {bullet}")
    elif page.place.sub == "Attributes":
        for attribute in page.product.attributes:
            yield Node(f" {attribute}")


def options_shown(place: Place) -> str:
    """Return the chosen options as the last page shows them: JSON by name, with the letters escaped that mean something in HTML."""
    shown = json.dumps(dict(place.options), sort_keys=True)
    for letter in "<>&'":
        shown = shown.replace(letter, f"\\u{ord(letter):04x}")
    return shown


def _done(page: Page) -> Iterator[Node]:
    yield Node("Thank you for shopping with us!")
    yield from map(Node, ("Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased", "asin", page.place.asin, "options"))
    yield Node(options_shown(page.place))
    for name in _PURCHASED:
        yield Node(name)
        yield Node("None")
    yield Node("Target")
    yield from map(Node, _TARGET)
    yield from map(Node, ("Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)", str(page.reward), "Reward Details ", "None"))


_PAGES = {"index": _index, "results": _results, "item": _item, "sub": _sub, "done": _done}


def text(page: Page) -> str:
    """Return the plain observation: all pieces, stripped, with " [SEP] " between them. A chosen option does not show."""
    return " [SEP] ".join([n.text.strip() for n in nodes(page)])


def rich(page: Page) -> str:
    """Return the marked observation: one piece a line, buttons and links marked, clicked ones marked so."""
    said, lines = [], []
    for n in nodes(page):
        if n.kind == "text":
            lines.append(f"{n.text}\n")
            continue
        mark = "clicked button" if n.on else "button"
        lead = {"product": "\n", "option": "  "}.get(n.kind, "")
        lines.append(f"{lead}[{mark}] {n.text} [{mark}_]\n")
        if n.on and n.kind == "option":
            said.append(f"You have clicked {n.text}.\n")
    return "".join([*reversed(said), *lines])


def url(place: Place, sid: str) -> str:
    """Return the address of a place as the original writes it: nothing escaped, options as JSON on item pages and as Python's dict elsewhere."""
    keywords, options = "+".join(place.keywords), dict(place.options)
    if place.kind == "index":
        return f"{HOST}/{sid}"
    if place.kind == "results":
        return f"{HOST}/search_results/{sid}/{keywords}/{place.page}"
    if place.kind == "item":
        return f"{HOST}/item_page/{sid}/{place.asin}/{keywords}/{place.page}/{json.dumps(options)}"
    if place.kind == "sub":
        return f"{HOST}/item_sub_page/{sid}/{place.asin}/{keywords}/{place.page}/{place.sub}/{options}"
    return f"{HOST}/done/{sid}/{place.asin}/{options}"
