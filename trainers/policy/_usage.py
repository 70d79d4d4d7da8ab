"""What an endpoint was asked for, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Usage:
    """Counts since the start. Tokens are those that the endpoint reports; `unreported` answers came without.

    price_in, price_out, price_cached  per million tokens: read, written (reasoning included), read from the endpoint's cache
    """

    price_in: float = 0.0
    price_out: float = 0.0
    price_cached: float | None = None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("requests", "retries", "rate_limited", "prompt", "cached", "completion", "reasoning", "unreported"), 0)
    )

    def add(self, **counts: int) -> None:
        """Count something."""
        for name, n in counts.items():
            self.counts[name] += n

    def answer(self, usage: Any) -> None:
        """Count an answer's tokens; `usage` is that field of the answer."""
        self.add(requests=1)
        if not isinstance(usage, Mapping):
            self.add(unreported=1)
            return
        read, written = _of(usage, "prompt_tokens"), _of(usage, "completion_tokens")
        cached = _of(usage.get("prompt_tokens_details"), "cached_tokens")
        self.add(prompt=read, cached=min(cached, read), completion=written)
        self.add(reasoning=_of(usage.get("completion_tokens_details"), "reasoning_tokens"))

    def cost(self, counts: Mapping[str, float] | None = None) -> float:
        """Return what the counts cost, in the currency of the prices."""
        c = self.counts if counts is None else counts
        cached = self.price_in if self.price_cached is None else self.price_cached
        return ((c["prompt"] - c["cached"]) * self.price_in + c["cached"] * cached + c["completion"] * self.price_out) / 1e6

    def report(self) -> dict[str, float]:
        """Return the counts, and the cost where there are prices."""
        priced = any((self.price_in, self.price_out, self.price_cached))
        return {n: float(x) for n, x in self.counts.items()} | ({"cost": self.cost()} if priced else {})


def line(report: Mapping[str, float]) -> str:
    """Return a report in one line."""
    n = {k: int(v) for k, v in report.items() if k != "cost"}
    cost = f"; cost {report['cost']:.4f}" if "cost" in report else "; set policy.price_in and price_out (per million tokens) for the cost"
    lost = f", {n['unreported']:,} answers without token counts" if n["unreported"] else ""
    return (
        f"{n['requests']:,} answers, {n['retries']:,} retries, {n['rate_limited']:,} times rate-limited; {n['prompt']:,} tokens read "
        f"({n['cached']:,} cached), {n['completion']:,} written ({n['reasoning']:,} reasoning){lost}{cost}"
    )


def _of(source: Any, name: str) -> int:
    found = source.get(name) if isinstance(source, Mapping) else None
    return found if isinstance(found, int) and found > 0 else 0
