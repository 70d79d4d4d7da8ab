"""One shell command in a fenced block, the protocol of mini-swe-agent: any text, and exactly one ```bash … ```."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigError, did_you_mean
from ..toolcall import Call, CallError, Reply, Spec
from ._read import check_text, is_text, quote, required

OPEN, CLOSE = "```bash", "```"
_RIGHT = f"{OPEN}\nls -la\n{CLOSE}"


class bash_block:
    """Read a call of one tool from the only ```bash block of a completion; other tools cannot be called.

    A block is closed by a line that is ``` and nothing else, so a command cannot have such a line. There is no call that ends an episode: a command
    ends it whose output begins with the line `submits`, where the environment knows of it (SWE does).

    tool  the tool that takes the command as its only required argument
    """

    submits = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

    def __init__(self, *, tool: str = "bash") -> None:
        self.tool = tool

    def stops(self, tools: Sequence[Spec]) -> tuple[str, ...]:
        """Return nothing: the end of the block looks like that of any other."""
        return ()

    def instructions(self, tools: Sequence[Spec]) -> str:
        """Return how a command is given and how the work is handed in. Raises ConfigError where there is no tool that takes one."""
        self._argument(tools)
        return (
            "Answer with your thoughts and exactly ONE command, in a block like this:\n\n"
            f"{_RIGHT}\n\n"
            "Several commands can be joined with && or stand on lines of their own in that block. An answer without a block, or with more than one, "
            "is not carried out. When all is done, hand it in with a block that has nothing but:\n\n"
            f"{OPEN}\necho {self.submits}\n{CLOSE}"
        )

    def parse(self, text: str, tools: Sequence[Spec]) -> list[Call]:
        """Return the one call. Raises CallError where there is no block, or more than one."""
        check_text(text)
        argument = self._argument(tools)
        blocks, opened = _blocks(text)
        if len(blocks) != 1 or opened:
            what = f"There are {len(blocks)} {OPEN} blocks" if blocks else f"There is no {OPEN} block"
            what = f"The last {OPEN} block is not closed" if opened else what
            raise CallError(f"{what}: give exactly one command. A right answer ends like this:\n{_RIGHT}")
        if not blocks[0].strip():
            raise CallError(f"The {OPEN} block is empty. A right answer ends like this:\n{_RIGHT}")
        return [Call(self.tool, {argument: blocks[0]})]

    def render(self, calls: Sequence[Call], thought: str = "", tools: Sequence[Spec] = ()) -> str:
        """Return the block. Raises ValueError for another tool, several calls, and a command or a thought that has a fence of its own."""
        command = next(iter(calls[0].arguments.values()), None) if len(calls) == 1 and calls[0].name == self.tool else None
        if not isinstance(command, str) or len(calls[0].arguments) != 1:
            raise ValueError(f"bash_block can express one call of {self.tool!r} with one text, and nothing else; got {quote(str(list(calls)))}")
        text = f"{thought}\n\n{OPEN}\n{command}\n{CLOSE}" if thought else f"{OPEN}\n{command}\n{CLOSE}"
        if _blocks(text) != ([command], False) or not command.strip():
            what = f"the command {quote(command)} after the thought {quote(thought)}"
            raise ValueError(f"bash_block cannot express {what}: one of them has a fence of its own, or the command is empty")
        return text

    def replies(self, replies: Sequence[Reply]) -> str:
        """Return what the command gave, as it is."""
        return "\n".join(r.content for r in replies)

    def _argument(self, tools: Sequence[Spec]) -> str:
        names = [s.name for s in tools]
        spec = next((s for s in tools if s.name == self.tool), None)
        if spec is None:
            raise ConfigError(f"format.bash_block.tool: there is no tool {self.tool!r}.{did_you_mean(self.tool, names)} Tools: {', '.join(names)}")
        must = required(spec)
        if len(must) != 1 or not is_text(spec, must[0]):
            raise ConfigError(f"format.bash_block.tool: {spec.signature} does not take one text and nothing else; name a tool that does")
        return must[0]


def _blocks(text: str) -> tuple[list[str], bool]:
    """Return the contents of the ```bash blocks, and whether the last one is not closed. Only \\n ends a line."""
    out: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        if inside is None:
            if line.strip() == OPEN:
                inside = []
        elif line.strip() == CLOSE:
            out.append("\n".join(inside))
            inside = None
        else:
            inside.append(line)
    return out, inside is not None
