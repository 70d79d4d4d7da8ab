"""Similar states: the greedy rule of METHODS 1.2, whatever is left out on the way."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym.errors import ConfigError
from agentgym.trainers.similar import merge_similar

# Sentences as environments write them, short alphabets (many near misses), and texts long enough for difflib's own short cut (200 characters).
PLACES = st.builds(
    "You arrive at {} {}. On the {} you see a {} {}.".format,
    *(st.sampled_from(x) for x in (["desk", "shelf"], "1234", ["desk", "bed"], ["mug", "cd"], "12")),
)
TEXTS = (
    PLACES
    | st.text("ab", max_size=12)
    | st.text(max_size=8)
    | st.builds(lambda a, n: a * n, st.text("abc ", min_size=1, max_size=9), st.integers(20, 60))
)
THRESHOLDS = st.sampled_from([0.05, 0.5, 2 / 3, 0.75, 0.8, 0.9, 0.95, 0.99])


def naive(text, group, threshold):
    """Return the cluster of each row as METHODS 1.2 has it: (group, number)."""
    clusters, out = {}, []
    for own, g in zip(text, group, strict=True):
        mine = clusters.setdefault(g, [])
        n = next((i for i, first in enumerate(mine) if SequenceMatcher(None, own, first).ratio() >= threshold), len(mine))
        if n == len(mine):
            mine.append(own)
        out.append((g, n))
    return out


def columns(rows):
    """Return (step_state, group, state_text) as pack() makes them of (text, group) rows."""
    ids = {}
    state = [ids.setdefault((g, text), len(ids)) for text, g in rows]
    return torch.tensor(state), torch.tensor([g for _, g in rows]), [text for _, text in ids]


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.integers(0, 2)), min_size=1, max_size=25), THRESHOLDS)
@example([("You pick up the pan 2 from the stoveburner 2.", 0), ("You pick up the spoon 2 from the sidetable 1.", 0)], 0.8)  # exactly 0.8
@example([("", 0), ("a", 0), ("", 1)], 0.5)
def test_the_greedy_rule(rows, threshold):
    state, group, text = columns(rows)
    found = merge_similar(state, group, text, threshold)
    assert same_partition(found.tolist(), naive([t for t, _ in rows], group.tolist(), threshold))
    assert set(found.tolist()) <= set(state.tolist())  # a cluster goes by its first member


def test_the_first_cluster_that_passes_wins_and_order_matters():
    near = ["aaaaaaaabb", "aaaaaaaaab", "aaaaaaaaaa"]  # neighbours 0.9, the ends 0.8
    state, group, text = columns([(t, 0) for t in near])
    assert merge_similar(state, group, text, 0.85).tolist() == [0, 0, 2]
    state, group, text = columns([(t, 0) for t in (near[1], near[0], near[2])])
    assert merge_similar(state, group, text, 0.85).tolist() == [0, 0, 0]


def test_groups_stay_apart_and_ids_may_have_gaps():
    found = merge_similar(torch.tensor([7, 2, 7, 5]), torch.tensor([1, 0, 1, 1]), ["-", "-", "same 1", "-", "-", "same 3", "-", "same 2"], 0.7)
    assert found.tolist() == [7, 2, 7, 7]


@pytest.mark.parametrize("threshold", [0.0, 1.0, -1.0, 90.0])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        merge_similar(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), ["a"], threshold)


@pytest.mark.parametrize("text", [None, [], ["only one"]])
def test_missing_texts_are_named(text):
    with pytest.raises(ConfigError, match="state_text"):
        merge_similar(torch.arange(2), torch.zeros(2, dtype=torch.long), text, 0.9)


def test_hashes_are_refused():
    with pytest.raises(ConfigError, match=r"hashes.*env\.state=observation"):
        merge_similar(torch.arange(2), torch.zeros(2, dtype=torch.long), ["0f" * 16, "a1" * 16], 0.9)
