"""Which state texts are nearly the same: the greedy clusters of difflib's ratio, found without comparing every pair with difflib."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
import torch
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist
from torch import Tensor

from agentgym.errors import ConfigError

# Room for rounding where a bound is compared with the threshold: rapidfuzz reckons a cutoff in single precision.
_SLACK = 1e-5
_BUCKETS = 96  # printable ASCII has 95 characters: each gets a count of its own, others share


def merge_similar(step_state: Tensor, group: Tensor, text: Sequence[str] | None, threshold: float) -> Tensor:
    """Return [S] int ids: `step_state` with each state replaced by the first state of its group that its text is like.

    The rule of GiGPO's code (arXiv 2505.10978): in the order of rows, inside one group, a step joins the first cluster whose first member b has
    SequenceMatcher(None, a, b).ratio() ≥ threshold for its own text a, or opens a new cluster.

    step_state [S] ids, distinct between groups; group [S] → G; text: a text for each id. Raises ConfigError when there is nothing to compare.
    """
    if not 0 < threshold < 1:
        raise ConfigError(f"similarity is {threshold}, expected a number between 0 and 1 such as 0.9, or null: only equal states are grouped")
    ids, row = torch.unique(step_state, return_inverse=True)
    if not text or len(text) <= int(ids[-1]):
        raise ConfigError(f"similarity needs 'state_text', a text for each of the {len(ids)} states; got {len(text or ())} texts")
    # Each distinct text is looked at once. When a text comes again, the clusters that it passed by then are still there with the same first
    # members, and so is the one that it joined: it gets there again. So the order of first appearance decides everything.
    first = torch.full_like(ids, len(row)).scatter_reduce(0, row, torch.arange(len(row)), "amin")
    order = first.argsort()
    order = order[group[first[order]].argsort(stable=True)]
    leader = torch.arange(len(ids))
    for members in order.split(torch.unique(group[first], return_counts=True)[1].tolist()):
        names = [text[i] for i in ids[members].tolist()]
        leader[members] = members[torch.from_numpy(leaders(names, threshold))]
    return ids[leader[row]]


def leaders(texts: Sequence[str], threshold: float) -> np.ndarray:
    """Return for each text the index of the first member of its cluster; `texts` are different and in the order of their first appearance.

    Cluster by cluster instead of text by text, which is the same: a text joins the first cluster that takes it, and the first text that no
    earlier cluster took opens the next. Of the texts still free, length and letters leave few; of those, the longest common subsequence, which
    is at least as long as difflib's matching blocks together; difflib decides on the rest. A text costs about one comparison by difflib, and at
    worst, when nothing is alike, 0.1 µs for each other text of about its length.
    """
    length = np.array([len(t) for t in texts])
    _refuse_hashes(texts, length)
    by_length = length.argsort(kind="stable")
    ordered, letters = length[by_length], _letters(texts)
    leader = np.full(len(texts), -1)
    matcher = SequenceMatcher(None)
    for i in range(len(texts)):
        if leader[i] >= 0:
            continue
        leader[i] = i
        # 2 · shorter / (shorter + longer) bounds the ratio
        low, high = np.searchsorted(ordered, (length[i] * threshold / (2 - threshold) - _SLACK, length[i] * (2 - threshold) / threshold + _SLACK))
        near = by_length[low:high]
        near = near[(near > i) & (leader[near] < 0)]
        near = near[_differ(letters[near], letters[i]) <= (1 - threshold + _SLACK) * (length[near] + length[i])]
        if len(near):
            bound = cdist([texts[i]], [texts[j] for j in near], scorer=Indel.normalized_similarity, score_cutoff=max(threshold - _SLACK, 0.0))[0]
            near = near[bound > 0]
        if len(near):
            matcher.set_seq2(texts[i])  # what difflib prepares for the second text serves for all
            leader[[j for j in near.tolist() if _ratio(matcher, texts[j]) >= threshold]] = i
    return leader


def _ratio(matcher: SequenceMatcher[str], text: str) -> float:
    matcher.set_seq1(text)
    return matcher.ratio()


def _letters(texts: Sequence[str]) -> np.ndarray:
    """Return [texts, buckets] uint8 how often each character occurs, at most 255."""
    code = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    text = np.repeat(np.arange(len(texts)), [len(t) for t in texts])
    return np.bincount(text * _BUCKETS + code % _BUCKETS, minlength=len(texts) * _BUCKETS).reshape(-1, _BUCKETS).clip(max=255).astype(np.uint8)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return [texts] how many characters must at least be taken out and put in to get from `a` to `b`: each changes one count by one."""
    return (np.maximum(a, b) - np.minimum(a, b)).sum(1, dtype=np.uint16)


def _refuse_hashes(texts: Sequence[str], length: np.ndarray) -> None:
    if len(texts) > 1 and length[0] >= 16 and (length == length[0]).all() and all(set(t) <= set("0123456789abcdef") for t in texts):
        raise ConfigError(
            f"similarity compares the texts of states, but the environment's are hashes, such as {texts[0]!r}: nothing is alike about similar ones. "
            "Let it give texts (ALFWorld: env.state=observation), or set similarity to null"
        )
