"""The tools of any MCP server (Model Context Protocol) as agentgym tools: `tools = [agentgym.mcp("uvx some-server")]` in a ToolEnv."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .errors import ConfigError, did_you_mean
from .mcp_session import CLOSING, Address, address_of, connect, connected, connections, disconnect, short, wait_for
from .toolcall import CallError, Spec
from .tools import LIMIT, TIMEOUT, Tool, ToolResult, background_loop


def mcp(
    where: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    limit: int = LIMIT,
    only: Sequence[str] | None = None,
    start_timeout: float = 30.0,
) -> MCPTools:
    """Return the tools of an MCP server, for `tools` of a ToolEnv. The server is started, or connected to, when they are first asked for.

    One connection per process serves every episode, so calls run in parallel, and what the server remembers it remembers for all of them.

    where          http(s)://… (streamable HTTP; the older SSE where the path ends in /sse), else a command line, or its words
    env            variables for the command, besides the few that it inherits (PATH, HOME, USER, …); keys and tokens are not inherited
    headers        HTTP headers, such as {"Authorization": "Bearer …"}
    timeout        seconds until a call is cut off and the model is told so
    limit          characters of a result that the model sees
    only           names of the tools to take; the others are not shown to the model
    start_timeout  seconds until the server must have listed its tools

    Raises ConfigError where an argument is wrong; when it is used, ConfigError on a name in `only` that the server lacks or when the package
    `mcp` is not installed, and EnvError where the server cannot be started or is lost; the call after that connects again.
    """
    if isinstance(only, str):
        raise ConfigError(f"mcp(only={only!r}): a list of names is expected, such as only=[{only!r}]")
    if min(timeout, start_timeout) <= 0 or limit < 1:
        raise ConfigError(f"mcp({where!r}): timeout={timeout}, start_timeout={start_timeout}, limit={limit}; all are above 0")
    return MCPTools(address_of(where, env or {}, headers or {}, start_timeout), timeout, limit, None if only is None else tuple(only))


class MCPTools(Iterable[Tool]):
    """The tools of one server, listed on first use. Copies and pickles hold the address only: they share the connection of their process."""

    def __init__(self, address: Address, timeout: float, limit: int, only: tuple[str, ...] | None) -> None:
        self.address, self.timeout, self.limit, self.only = address, timeout, limit, only
        self._listed: list[MCPTool] | None = None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"mcp({str(self.address)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_listed": None}

    def close(self) -> None:
        """End this process's connection, and the server if it was started here. Whatever uses the tools after that connects again."""
        connection = connections.get(self.address)
        if connection is not None and not connection.dead:
            wait_for(disconnect([connection]), CLOSING + 5)

    @property
    def _tools(self) -> list[MCPTool]:
        if self._listed is None:
            told = connect(self.address).listed
            known = [t["name"] for t in told]
            for name in self.only or ():
                if name not in known:
                    raise ConfigError(f"{self!r} has no tool {name!r} (only=…).{did_you_mean(name, known)} Tools: {', '.join(known) or 'none'}")
            self._listed = [self._tool(t, i, told) for i, t in enumerate(told) if self.only is None or t["name"] in self.only]
        return self._listed

    def _tool(self, told: dict[str, Any], i: int, all_told: list[dict[str, Any]]) -> MCPTool:
        name = _tool_name(told["name"])
        if any(_tool_name(t["name"]) == name for t in all_told[:i]):
            name = f"{name[:60]}_{i}"  # "a.b" and "a/b" are two tools, and both would be a_b
        return MCPTool(self.address, told, name=name, timeout=self.timeout, limit=self.limit)


class MCPTool(Tool):
    """A tool of an MCP server: its schema is the server's, and arguments are checked against it before they are sent."""

    def __init__(self, address: Address, told: dict[str, Any], *, name: str, timeout: float, limit: int) -> None:
        description = told.get("description") or told.get("title") or ""
        super().__init__(functools.partial(_call, address, told["name"]), name=name, description=description, timeout=timeout, limit=limit)
        self.__doc__ = description
        self.address, self.schema = address, _closed(told.get("inputSchema") or {})
        self._spec = Spec(name, description, _parameters(told.get("inputSchema") or {}))

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        """Return the tool itself: it has no `self` to be bound to."""
        return self

    @property
    def spec(self) -> Spec:
        """Return what the model is told."""
        return self._spec

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON that the server's schema accepts ("3" is taken for an integer). Raises CallError with feedback."""
        properties = self._spec.parameters["properties"]
        given = {n: _read(v, properties.get(n, {})) for n, v in arguments.items()}
        said = _problems(self.schema, given)
        if not said:
            try:  # what cannot be sent (half of a surrogate pair, infinity) would end the connection of all episodes
                return dict(json.loads(json.dumps(given, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")))
            except (ValueError, TypeError, RecursionError) as e:
                said = [f"the arguments are no JSON: {e}."]
        raise CallError(f"{self.name}: {' '.join(said[:3])} Call it as {self.spec.signature}.")

    def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments and call. Raises CallError for what the model must mend, EnvError where the server is lost."""
        checked = self.check(arguments)
        connect(self.address)  # here, so that a server that must be started again has start_timeout for that, not this call's time
        return super().run(checked)


async def _call(address: Address, name: str, /, **arguments: Any) -> ToolResult:
    if asyncio.get_running_loop() is not background_loop():  # the tool was awaited by somebody's own loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_call(address, name, **arguments), background_loop()))
    return await (await connected(address)).call(name, arguments)


# -- schemas ------------------------------------------------------------------------------------------------------------------


def _tool_name(name: str) -> str:
    """Return a name that endpoints take for a server's name such as `files.read`."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return (plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}")[:64]


def _parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as endpoints like it: no titles, one type each, `properties` always there."""
    properties = {}
    for name, p in schema.get("properties", {}).items():
        p = {k: v for k, v in p.items() if k != "title"} if isinstance(p, dict) else {}
        if isinstance(p.get("type"), list) and "anyOf" not in p:
            p["anyOf"] = [{"type": t} for t in p.pop("type")]
        properties[name] = p
    rest = {k: v for k, v in schema.items() if k not in ("title", "$schema")}
    return rest | {"type": "object", "properties": properties, "required": list(schema.get("required", []))}


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with unknown arguments refused, unless it says something about them; servers tend to ignore them in silence."""
    says = ("additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref")
    return dict(schema) | ({} if "properties" not in schema or any(k in schema for k in says) else {"additionalProperties": False})


def _read(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return what a text stands for where the schema wants no text: formats without types give every argument as text."""
    kinds = [x.get("type") for x in (schema, *schema.get("anyOf", ())) if isinstance(x, dict) and (x is not schema or "type" in x)]
    if not isinstance(value, str) or not kinds or None in kinds or "string" in kinds:
        return value
    try:
        return json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value


def _problems(schema: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Return what is wrong with the arguments, in sentences."""
    said = [f"the argument {n!r} is missing." for n in schema.get("required", []) if n not in given]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        said += [f"there is no argument {n!r}." for n in given if n not in schema.get("properties", {})]
    validator = _validator(json.dumps(schema, sort_keys=True))
    if said or validator is None:
        return said
    try:
        for e in validator.iter_errors(given):
            where = ".".join(str(x) for x in e.absolute_path)
            said.append(f"{f'argument {where!r}: ' if where else ''}{short(e.message)}.")
    except Exception:  # a reference or a pattern that Python cannot resolve: the server judges
        return []
    return said


@functools.lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """Return a validator; None where the schema is not valid, or jsonschema (not needed by mcp 1.9) is missing: then the server alone judges."""
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry
    except ImportError:
        return None
    read = json.loads(schema)
    make = validator_for(read, default=Draft202012Validator)
    try:
        make.check_schema(read)
    except SchemaError:
        return None
    return make(read, registry=Registry())  # an empty registry: a schema must not make us fetch a URL
