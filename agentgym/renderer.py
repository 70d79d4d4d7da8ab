"""The only place where text becomes tokens: chat messages → ids, and sampled ids → text.

Token-in, token-out: what a policy sampled is never re-encoded. A later turn is the old ids plus a *bridge*: the ids
that close the assistant's message, the new messages, and the next generation prompt. Bridges come from the tokenizer's
own chat template, rendered once with sentinel texts in place of the contents; where the template treats contents
verbatim (checked) only its fixed parts are kept, and a turn costs microseconds instead of a template run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import ConfigError, PolicyError
from .types import Message

# Stand-ins for contents. The second kind has what templates like to trim or rewrite: outer whitespace and a reasoning
# block.
_PLAIN = "\u27e6{}\u27e7"
_HOSTILE = " \n<think>\nr\n</think>\n\n\u27e6{}\u27e7 \n"
_ASSISTANT = "\u27e6assistant\u27e7"


class Renderer:
    """Render chat messages with a tokenizer's chat template.

    options   chat-template variables, for example `{"enable_thinking": False}`; a name that the template never reads is
              an error
    stop_ids  further ids that end a turn (a generation config's `eos_token_id`), besides the tokenizer's eos and the
              template's own end
    """

    stop_ids: frozenset[int]
    end_id: int

    def __init__(self, tokenizer: Any, *, options: Mapping[str, Any] | None = None, stop_ids: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.options = dict(options or {})
        template = getattr(tokenizer, "chat_template", None)
        if not template:
            raise PolicyError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__!r} has no chat template; "
                "use an instruction-tuned model, or set tokenizer.chat_template (Jinja) and save it beside the model"
            )
        for name in self.options:
            if not re.search(rf"\b{re.escape(name)}\b", str(template)):
                raise ConfigError(f"the chat template never reads the option {name!r}: it would do nothing. Remove it from renderer options")
        # The caches live on the instance: two renderers with different templates must not share them.
        self._encode = functools.lru_cache(maxsize=16_384)(self._encode_uncached)
        self._decode = functools.lru_cache(maxsize=16_384)(self._decode_uncached)
        self._pieces = functools.lru_cache(maxsize=256)(self._pieces_uncached)
        known = {i for i in (getattr(tokenizer, "eos_token_id", None), *stop_ids) if i is not None}
        self.end_id, self._opening = self._find_end(known)
        self.stop_ids = frozenset(known | {self.end_id})

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a whole new context: all messages and the prompt for the assistant's next one."""
        return list(self._encode(self._text(tuple(messages), after_assistant=False)))

    def extend(self, messages: Sequence[Message], *, ended: bool) -> list[int]:
        """Return the ids between a sampled completion and the next one, with `messages` (new since then) in between.

        `ended`: the completion's last id was an end token, so the bridge starts after it; otherwise (cut off by length
        or by a stop string) the bridge starts with the end token, which is then context that nobody sampled.
        """
        ids = self._encode(self._text(tuple(messages), after_assistant=True))
        if not ended:
            return list(ids)
        for i, token in enumerate(ids):
            if token in self.stop_ids:  # the template may put a space before its end token, hence the search
                return list(ids[i + 1 :])
        return list(ids)

    def encode_completion(self, text: str) -> list[int]:
        """Return the ids of a completion that was written as text (a demonstration), the end token included."""
        # Encoded behind the generation prompt: some tokenizers begin a text differently from how they continue one.
        before, both = self._encode(self._opening), self._encode(self._opening + text)
        ids = both[len(before) :] if both[: len(before)] == before else self._encode(text)
        return [*ids, self.end_id]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of a completion without end and other special tokens."""
        return self._decode(tuple(tokens))

    def _encode_uncached(self, text: str) -> tuple[int, ...]:
        # An environment may echo what a tokenizer refuses: a lone surrogate, which is no Unicode text, becomes a
        # question mark.
        return tuple(self.tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False))

    def _decode_uncached(self, tokens: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode([t for t in tokens if t not in self.stop_ids], skip_special_tokens=True))

    def _text(self, messages: tuple[Message, ...], *, after_assistant: bool) -> str:
        """Return the template's text for `messages` (after an assistant message: what follows that message's content)."""
        pieces = self._pieces(tuple(m.role for m in messages), after_assistant)
        if pieces is None:
            return self._template(messages, after_assistant)
        out = [pieces[0]]
        for m, piece in zip(messages, pieces[1:], strict=True):
            out += m.content, piece
        return "".join(out)

    def _template(self, messages: Sequence[Message], after_assistant: bool, *, generate: bool = True) -> str:
        """Run the chat template; after an assistant message only the text behind its content is returned."""
        before = [Message("user", _PLAIN.format("user")), Message("assistant", _ASSISTANT)] if after_assistant else []
        chat = [{"role": m.role, "content": m.content} for m in (*before, *messages)]
        try:
            text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generate, **self.options)
        except Exception as e:  # Jinja's errors, and whatever a template raises on purpose
            roles = " → ".join(m["role"] for m in chat)
            raise PolicyError(
                f"the chat template refuses the roles {roles}: {e}. Choose a context that sends other roles, or another template"
            ) from e
        if not after_assistant:
            return str(text)
        _, found, tail = str(text).partition(_ASSISTANT)
        if not found:
            raise PolicyError("the chat template drops or rewrites an earlier assistant message: a conversation cannot be extended with it")
        return tail

    def _pieces_uncached(self, roles: tuple[str, ...], after_assistant: bool) -> tuple[str, ...] | None:
        """Return the fixed texts around the contents of messages with `roles`, or None when the template does more than insert them."""
        plain, hostile = (self._split(roles, after_assistant, kind) for kind in (_PLAIN, _HOSTILE))
        return plain if plain == hostile else None

    def _split(self, roles: tuple[str, ...], after_assistant: bool, sentinel: str) -> tuple[str, ...] | None:
        contents = [sentinel.format(i) for i in range(len(roles))]
        rest = self._template([Message(r, c) for r, c in zip(roles, contents, strict=True)], after_assistant)  # type: ignore[arg-type]
        pieces = []
        for content in contents:
            head, found, rest = rest.partition(content)
            if not found:
                return None
            pieces.append(head)
        return (*pieces, rest)

    def _find_end(self, known: set[int]) -> tuple[int, str]:
        """Return the id that ends an assistant's message, and the text between a user's message and the assistant's."""
        closing = self._encode(self._template((), True, generate=False))
        special = set(getattr(self.tokenizer, "all_special_ids", ()))
        end = next((i for i in closing if i in known), None)
        end = end if end is not None else next((i for i in closing if i in special), None)
        if end is None:
            if not known:
                raise PolicyError("neither the tokenizer (eos_token) nor its chat template names a token that ends the assistant's turn")
            end = min(known)
        sentinel = _PLAIN.format("user")
        return end, self._template([Message("user", sentinel)], False).rpartition(sentinel)[2]
