"""Pages as HTML: our own markup, with the visible text, ids, classes and names that agents written for the original look for.

Nothing is loaded from elsewhere: a product's picture is hidden, with its address in `data-src`, unless pictures are asked for; and a server says
so once more to browsers (see `policy`). A page works without scripts: everything is a link or a form. With scripts, choosing an option goes to
the option's page at once (the only script there is, SCRIPT); without, a button "Choose" does it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError

from . import address
from .render import BACK, BUY, INFO_BUTTONS, NEXT, PREV, SEARCH, options_shown
from .shop import Clickable, leads
from .types import Goal, Page

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as e:
    raise ConfigError(f"WebShop's HTML pages need a further package ({e}): pip install 'agentgym[webshop]'") from e

_FOLDER = Path(__file__).parent
SCRIPT = 'document.addEventListener("change", e => { if (e.target.dataset.url) location.assign(e.target.dataset.url) })'
_PARTS = {
    "r_type": "kind of product (factor)",
    "title_score": "nouns of the title shared",
    "query_match": "same query",
    "category_match": "same category",
    "r_att": "attributes it has",
    "w_att": "weight of the attributes",
    "r_option": "options chosen",
    "w_option": "weight of the options",
    "r_price": "price is not too high",
    "w_price": "weight of the price",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What the last page tells people, and not an agent: what was asked for, and what the purchase earned, in parts."""

    goal: Goal
    parts: Mapping[str, Any]


def page_html(page: Page, sid: str, report: Report | None = None, images: bool = False) -> str:
    """Return a page of session `sid` as HTML. Without `report` its visible text is that of `render.text`. `images`: show the products' pictures."""
    at = page.place

    def to(kind: str, name: str, text: str = "") -> str:
        return address.path(sid, leads(at, Clickable(kind, name), text))

    values = {"page": page, "at": at, "product": page.product, "chosen": dict(at.options), "options": options_shown(at)}
    return _template(f"{at.kind}.html").render(**values, to=to, images=images, told=None if report is None else _told(report))


def plain_html(name: str, **values: Any) -> str:
    """Return a page that is not of the shop: `start`, or `error`."""
    return _template(f"{name}.html").render(**values)


def stylesheet() -> bytes:
    """Return the style sheet, which pages expect at /static/style.css."""
    return (_FOLDER / "static" / "style.css").read_bytes()


def policy(images: bool) -> str:
    """Return the Content-Security-Policy of a page: what a browser may load for it. `images`: pictures from anywhere, else from nowhere."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    pictures = "data: https: http:" if images else "data:"
    return (
        f"default-src 'none'; style-src 'self'; img-src {pictures}; script-src 'sha256-{digest}'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _told(report: Report) -> dict[str, Any]:
    goal = asdict(report.goal) | {"options": report.goal.options}
    parts = {_PARTS[name]: _number(report.parts[name]) for name in _PARTS if name in report.parts}
    options = ", ".join(": ".join(o) if isinstance(o, tuple) else o for o in report.goal.wanted)
    return {"goal": report.goal, "options": options, "text": json.dumps(goal, ensure_ascii=False, indent=1, default=dict), "parts": parts}


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@functools.cache
def _template(name: str) -> Any:
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.globals |= {"BACK": BACK, "PREV": PREV, "NEXT": NEXT, "SEARCH": SEARCH, "BUY": BUY, "INFO_BUTTONS": INFO_BUTTONS, "SCRIPT": Markup(SCRIPT)}
    return found
