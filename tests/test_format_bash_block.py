"""The format bash_block: one command in one fenced block, as mini-swe-agent asks for."""

from __future__ import annotations

import time

import pytest

import agentgym
from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.formats.bash_block import bash_block
from agentgym.toolcall import Call, CallError, Reply, Spec

BASH = Spec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})
SUBMIT = Spec("submit", "Hand in.", {"type": "object", "properties": {}, "required": []}, final=True)
TOOLS = [SUBMIT, BASH]
FORM = bash_block()


def wrong(text: str) -> str:
    with pytest.raises(CallError) as e:
        FORM.parse(text, TOOLS)
    return str(e.value)


def test_the_registry_knows_it() -> None:
    assert "bash_block" in registry.names("format")
    assert registry.bind("format", "bash_block", {"tool": "sh"})().tool == "sh"


@pytest.mark.parametrize(
    "text, command",
    [
        ("```bash\nls\n```", "ls"),
        ("I look around first.\n\n```bash\nls -la\n```\nThen I read.", "ls -la"),
        ("```bash\ncd a\n\nfor i in 1 2; do\n  echo $i\ndone\n```\n", "cd a\n\nfor i in 1 2; do\n  echo $i\ndone"),
        ("  ```bash  \necho `date` '```' x\n  ```", "echo `date` '```' x"),
        ("```python\nprint()\n```\n```bash\nls\n```", "ls"),
        ("THOUGHT: x```bash\n```bash\nls\r\n```", "ls\r"),
    ],
)
def test_what_is_read(text: str, command: str) -> None:
    assert FORM.parse(text, TOOLS) == [Call("bash", {"command": command})]


def test_what_is_refused() -> None:
    assert wrong("ls -la").startswith("There is no ```bash block: give exactly one command.")
    assert wrong("").startswith("There is no ```bash block") and wrong("```\nls\n```").startswith("There is no")
    assert wrong("```bash\nls\n```\n```bash\npwd\n```").startswith("There are 2 ```bash blocks")
    assert "is not closed" in wrong("```bash\nls") and "is not closed" in wrong("```bash\nls\n```\n```bash\nls")
    assert "is empty" in wrong("```bash\n\n```") and "lone surrogate" in wrong("```bash\n\ud800\n```")
    for text in ("", "x", "```bash\n"):
        assert "```bash\nls -la\n```" in wrong(text), "it shows a right answer"


@pytest.mark.parametrize("command", ["ls", "a\nb", "a\n", "\n\na", "cat <<'E'\n``\nE", "echo '```'", " x ", "é 🙂\t\\n"])
def test_what_is_written_is_read_back(command: str) -> None:
    call = Call("bash", {"command": command})
    for thought in ("", "I think.", "See `this`:\n```python\nx\n```"):
        assert FORM.parse(FORM.render([call], thought, TOOLS), TOOLS) == [call]


def test_what_it_cannot_write() -> None:
    bash = Call("bash", {"command": "ls"})
    bad = [[], [bash, bash], [Call("submit", {})], *([Call("bash", {"command": c})] for c in (1, "a\n```\nb", " "))]
    for calls, thought in [*((calls, "") for calls in bad), ([bash], "```bash\nx\n```"), ([bash], "```bash")]:
        with pytest.raises(ValueError, match="bash_block"):
            FORM.render(calls, thought, TOOLS)


def test_it_needs_its_tool() -> None:
    with pytest.raises(ConfigError, match=r"no tool 'bash'\. Tools: submit"):
        FORM.instructions([SUBMIT])
    two = Spec("bash", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]})
    with pytest.raises(ConfigError, match="does not take one text"):
        FORM.parse("```bash\nls\n```", [two])


def test_what_the_model_is_told() -> None:
    text = FORM.instructions(TOOLS)
    assert "```bash\nls -la\n```" in text and f"```bash\necho {bash_block.submits}\n```" in text and not FORM.stops(TOOLS)
    assert FORM.replies([Reply(Call("bash", {}), "a\n[exit status 1]")]) == "a\n[exit status 1]"


def test_linear_time() -> None:
    for text in ("```bash\n" * 100_000, "```bash\nx\n```\n" * 50_000, "`" * 1_000_000, "\n" * 1_000_000):
        start = time.perf_counter()
        wrong(text)
        assert time.perf_counter() - start < 5


class Shell(agentgym.ToolEnv):
    """Any environment with a tool `bash` can be played in this format."""

    blocking = False
    format = "bash_block"

    @agentgym.tool(timeout=None)
    def bash(self, command: str) -> str:
        """Run it."""
        return f"ran {command}"

    def load_tasks(self, split: str) -> list[dict[str, str]]:
        return [{"id": "one", "split": split}]

    def setup(self, task: object) -> str:
        return "Go."

    def score(self) -> float:  # type: ignore[override]
        return 1.0


def test_in_an_environment() -> None:
    env = Shell(max_steps=2)
    assert "exactly ONE command" in env.reset()[0]
    assert env.step("hm")[0].startswith("There is no ```bash block") and not env._info(False)["valid"]
    assert env.step("so:\n```bash\nls\n```")[0] == "ran ls"
