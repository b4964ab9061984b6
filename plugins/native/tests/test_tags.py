"""Gets by tags, in every role: compiled code and plain Python have the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog import Message, Store
from lakelog.format.properties import SCHEDULE_TOPIC
from lakelog_queues.finding.get import QueueGetter
from lakelog_queues.finding.results import GetStatus
from lakelog_queues.units.tags import code_filter, java_hash, tag_filter
from plugins.native.tests.support import ROLES, in_role
from plugins.native.tests.test_getting import changed, outcome

PUTS = 1200
SETTINGS: dict[str, Any] = {
    "accelerator": "native",
    "flush": "none",
    "segment_size_bytes": 1 << 16,
    "consume-queue": {"file_entries": 1000},
}
TAGS = ("a", "b", "Aa", "BB", "\u00fc", "rare", "none")
"""Two have the same hash."""


def fill(store: Store) -> None:
    """A queue of two files; its end has a single tag, and another tag occurs once."""
    for at in range(PUTS):
        tags = TAGS[at % 5] if at < PUTS - 50 else "b"
        store.put(Message("t", bytes(at % 90), tags="rare" if at == 900 else tags, queue_id=0))
    for text in (
        b"TAGS\x01a\x02TAGS\x01b\x02",
        b"TAGS\x01\x02",
        b"XTAGS\x01b\x02",
        b"TAGS\x01b",
        b"",
    ):
        store.put(Message("t", b"odd", properties=text, queue_id=0))
    store.put(Message(SCHEDULE_TOPIC, b"", tags="a", queue_id=0))
    assert store.wait_dispatched()


@pytest.fixture(scope="module", params=ROLES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    with in_role(request.param, tmp_path_factory.mktemp("tags") / "s", fill, **SETTINGS) as store:
        for at in (0, 999, 1000):
            plain(store).get("t", 0, at, 1)
        yield store


def plain(store: Store) -> QueueGetter:
    getter = store._find.getter
    return QueueGetter(getter._queues, store._reader, getter._minimum, 1000)


def check(store: Store, offset: int, most: int, tags: str) -> None:
    own = outcome(store._find.getter, "t", 0, offset, most, tags=tags)
    assert own == outcome(plain(store), "t", 0, offset, most, tags=tags)


@given(
    st.integers(-1, PUTS + 7),
    st.sampled_from([1, 2, 7, 60, 801, 4097]),
    st.lists(st.sampled_from(TAGS), max_size=3).map(" || ".join),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_the_same(store: Store, offset: int, most: int, tags: str) -> None:
    check(store, offset, most, tags)


def test_what_is_answered(store: Store) -> None:
    def got(offset: int, most: int, tags: str, topic: str = "t") -> Any:
        return store._find.lookups.get(topic, 0, offset, most, tag_filter(topic, tags))

    found = got(0, 5, "a || \u00fc")
    assert found is not None
    assert [each.tags for each in found.messages] == ["a", "\u00fc", "a", "\u00fc", "a"]
    assert found == plain(store).get("t", 0, 0, 5, tags="a || \u00fc")
    seldom = got(5, 5, "none")
    assert (seldom.status, seldom.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 805)
    of_code = {java_hash("b")}
    records = store._find.lookups.records
    some = records("t", 0, 0, 2, 1, True, code_filter("t", of_code))
    assert some is not None
    assert some[1:3] == ([1], 2)
    assert records("t", 0, 0, 5, 1 << 20, True, code_filter(SCHEDULE_TOPIC, of_code)) is None
    assert got(990, 1, "b") is not None
    assert got(990, 500, "b") is None  # in two files
    assert got(0, 5, "BB") is None  # others have its hash
    assert got(0, 1, "a", SCHEDULE_TOPIC) is None
    check(store, 0, 5, "BB")


def test_a_unit_that_leads_nowhere(store: Store) -> None:
    file = store.path / "consumequeue" / "t" / "0" / f"{0:020d}"
    filler = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    for data in (filler, bytes(20), b"\xff" * 20):
        with changed(file, 3 * 20, data):
            for offset in (0, 3, 4):
                check(store, offset, 5, "a")
                check(store, offset, 5, "b || \u00fc")


def test_a_store_gives_them(store: Store) -> None:
    assert (
        store.get("t", 0, 0, 3, tags="b").messages
        == [each for each in store.read("t", 0) if each.tags == "b"][:3]
    )
    with pytest.raises(ValueError, match="contain no tag"):
        store.get("t", 0, 0, tags=" || ")
