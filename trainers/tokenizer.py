"""The tokenizer of `tiny` models: every common word is one token, every byte is a token, so any text comes back as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentgym.errors import ConfigError

END, PAD = "<|end|>", "<|pad|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, END, *(f"<|{r}|>" for r in ROLES))

# One token per role marker, and an end token only where the model must learn to write it: after its own messages.
CHAT_TEMPLATE = (
    "{%- for m in messages -%}"
    "{%- if m.role not in ['system', 'user', 'assistant', 'tool'] -%}{{ raise_exception('unknown role ' + m.role) }}{%- endif -%}"
    "{{ '<|' + m.role + '|>' + m.content }}{%- if m.role == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def build_tokenizer(corpus: Iterable[str], *, vocab: int, max_length: int) -> PreTrainedTokenizerFast:
    """Return a lossless tokenizer with at most `vocab` tokens: special tokens, 256 bytes, then the corpus's most frequent words.

    A word's token includes its leading space (" fridge"); a space is put before each message and taken off on decoding,
    so that a word is the same token at a message's start and inside it. Deterministic: ties of frequency are broken
    alphabetically.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    room = vocab - len(SPECIAL) - len(alphabet)
    if room < 0:
        raise ConfigError(f"model.vocab={vocab} is too small: {len(SPECIAL)} special tokens and {len(alphabet)} bytes need a place")
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    counts: Counter[str] = Counter()
    for text in corpus:
        counts.update(piece for piece, _ in split.pre_tokenize_str(" " + text))
    words = sorted((w for w in counts if len(w) > 1), key=lambda w: (-counts[w], w))[:room]
    # A unigram model needs no intermediate pieces, unlike BPE, whose merges would fill a small vocabulary with " fri",
    # " frid" … Equal scores make it choose the segmentation with the fewest pieces, whole words before bytes; the slope
    # only breaks ties.
    pieces = [(t, 0.0) for t in SPECIAL] + [(b, -2.0) for b in alphabet]
    pieces += [(w, -1.0 - 0.1 * i / max(1, len(words))) for i, w in enumerate(words)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = split
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[f"<|{r}|>" for r in ROLES],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
