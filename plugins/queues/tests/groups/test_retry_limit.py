"""The retry limit of a group's configuration applies to its members."""

from __future__ import annotations

import pytest

from lakelog import Store
from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.configs import set_retry_limit
from plugins.queues.tests.groups.support import Clock, fill


def hand_outs(store: Store, max_attempts: int | None = None) -> int:
    """Number of hand-outs of a message that always fails, before it is a dead letter."""
    count, clock = 0, Clock()
    with store.subscribe("g", "t", start="earliest", max_attempts=max_attempts) as member:
        clock.set_for(member)
        for _ in range(100):
            found = member.poll()
            store.wait_dispatched()
            count += len(found)
            for each in found:
                member.nack(each, 0)
            clock.ms += 1
            if store.queue_bounds("%DLQ%g", 0) is not None:
                return count
    raise AssertionError("there is no dead letter")


@pytest.mark.parametrize(("max_retries", "expected"), [(None, 17), (2, 3), (0, 1), (-1, 1)])
def test_a_message_is_handed_out_once_and_so_often_again(
    store: Store, max_retries: int | None, expected: int
) -> None:
    fill(store, 1)
    if max_retries is not None:
        set_retry_limit(RealFileSystem(), store.path, "g", max_retries)
    assert hand_outs(store) == expected


def test_an_argument_counts_more_than_the_configuration(store: Store) -> None:
    fill(store, 1)
    set_retry_limit(RealFileSystem(), store.path, "g", 5)
    assert hand_outs(store, max_attempts=2) == 2


def test_a_configuration_that_cannot_be_parsed_is_an_error(store: Store) -> None:
    (store.path / "config").mkdir(exist_ok=True)
    (store.path / "config" / "subscriptionGroup.json").write_text("{")
    with pytest.raises(CorruptConfig, match=r"subscriptionGroup\.json"):
        store.subscribe("g", "t")
    store.subscribe("g", "t", max_attempts=3).close()
