"""What `group_status` says of members and of messages that were handed out."""

from __future__ import annotations

import os
from pathlib import Path

import lakelog
from lakelog import Store
from plugins.queues.tests.groups.support import bodies, fill, joined


def test_members_and_messages_of_a_group(store: Store, tmp_path: Path) -> None:
    fill(store, 6, queues=1)
    assert store.group_status("g").members == []
    with joined(store) as member, lakelog.open(tmp_path, mode="read") as reader:
        found = member.poll(4)
        assert bodies(found) == [0, 1, 2, 3]
        assert member.ack(found[0])
        assert member.nack(found[2], 3_600_000)
        seen = reader.group_status("g")
        (one,) = seen.members
        assert (one.number, one.pid, one.state) == (member.member, os.getpid(), "active")
        assert seen.next_offsets == {("t", 0): 4}
        held = [(each.queue_offset, each.member, each.is_returned) for each in seen.in_flight]
        number = member.member
        assert held == [(1, number, False), (2, None, True), (3, number, False)]
        assert seen.in_flight[0].visible_in_ms <= 60_000 < seen.in_flight[1].visible_in_ms
        assert seen.in_flight[1].age_ms is None
        assert {each.attempt for each in seen.in_flight} == {1}
    after = store.group_status("g")
    assert after.members == []
    assert [each.visible_in_ms == 0 for each in after.in_flight] == [True, False, True]


def test_a_dead_member_is_seen_as_such(store: Store) -> None:
    fill(store, 1)
    member = joined(store)
    assert len(member.poll()) == 1
    del member
    found = store.group_status("g")
    assert [each.state for each in found.members] == ["dead"]
    assert [each.visible_in_ms for each in found.in_flight] == [0]
