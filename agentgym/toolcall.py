"""What tools, environments and tool-call formats say to each other: Spec, Call, Reply, CallError, Format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import AgentGymError, did_you_mean


class CallError(AgentGymError):
    """A call that the model got wrong. The text is the feedback that it reads: what was wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a model is told of a tool; `parameters` is a JSON schema of type object, `final` ends the episode."""

    name: str
    description: str
    parameters: dict[str, Any]
    final: bool = False

    @property
    def arguments(self) -> list[str]:
        """Return the names of the arguments, in the order of the schema."""
        return list(self.parameters.get("properties", {}))

    @property
    def signature(self) -> str:
        """Return a line such as `search(query: string, topk: integer = 3)`."""
        required = self.parameters.get("required", [])
        parts = []
        for name, p in self.parameters.get("properties", {}).items():
            kind = p.get("type") or " or ".join(str(x.get("type", "any")) for x in p.get("anyOf", [])) or "any"
            parts.append(f"{name}: {kind}" + ("" if name in required else f" = {p.get('default')!r}"))
        return f"{self.name}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as it was parsed; `id` is the endpoint's, where there is one."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call gave; `call` is None where no call could be read and `content` is the feedback on that."""

    call: Call | None
    content: str
    error: bool = False


class Format(Protocol):
    """How calls stand in the model's text. One class per file in formats/; keyword-only constructor parameters are its options."""

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return the strings at which generation can end because a call is complete."""
        ...

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return what the model is told about the tools and about how to call them."""
        ...

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the calls in `text`, at least one, in order. Raises CallError with feedback for the model; never anything else.

        Names are checked against `tools`; arguments are only read here: their types are checked by the tool.
        """
        ...

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the text of these calls: what an expert writes, as short as `tools` allow. parse(render(calls)) gives the calls back."""
        ...

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return the observation that carries the replies to the calls of one completion."""
        ...


def find_spec(name: str, tools: Sequence[Spec]) -> Spec:
    """Return the tool of that name. Raises CallError that lists what there is."""
    for spec in tools:
        if spec.name == name:
            return spec
    known = [s.name for s in tools]
    raise CallError(f"There is no tool {name[:80]!r}.{did_you_mean(name[:80], known)} Tools: {', '.join(known)}.")
