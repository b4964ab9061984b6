"""The shares of members: whole, disjoint, even, and the same for every member."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lakelog_queues.groups.assignment import share_of

MEMBERS = st.sets(st.integers(1, 1 << 40), min_size=1, max_size=20)
QUEUES = st.sets(st.tuples(st.sampled_from(["a", "b", "%RETRY%g"]), st.integers(0, 40)))


@given(MEMBERS, QUEUES)
def test_each_queue_has_one_member_and_shares_are_even(
    members: set[int], queues: set[tuple[str, int]]
) -> None:
    shares = [share_of(each, members, queues) for each in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


@given(MEMBERS, QUEUES, st.randoms())
def test_all_members_find_the_same(
    members: set[int], queues: set[tuple[str, int]], chance: random.Random
) -> None:
    mixed, others = list(members), list(queues)
    chance.shuffle(mixed)
    chance.shuffle(others)
    for each in members:
        assert share_of(each, members, queues) == share_of(each, mixed, others)


@given(MEMBERS, QUEUES)
def test_who_is_no_member_has_nothing(members: set[int], queues: set[tuple[str, int]]) -> None:
    assert share_of(0, members, queues) == []
