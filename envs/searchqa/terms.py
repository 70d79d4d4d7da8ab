"""bm25s' tokenizer over Lucene's English analysis. (bm25s' own pattern drops every word of a single letter or digit.)"""

from __future__ import annotations

from typing import Any

from agentgym.errors import ConfigError
from agentgym.lucene import STOP_WORDS, stem, words

__all__ = ["STOP_WORDS", "tokenizer", "words"]


def tokenizer() -> Any:
    """Return bm25s' tokenizer over Lucene's words and stems. It holds a vocabulary: threads must not share it."""
    try:
        from bm25s.tokenization import Tokenizer
    except ImportError as e:
        raise ConfigError(f"BM25 search needs further packages ({e}): pip install bm25s") from e
    return Tokenizer(lower=False, splitter=words, stopwords=sorted(STOP_WORDS), stemmer=stem)
