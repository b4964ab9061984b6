"""What of a store lands is part of the position: what was left out before would never land."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from lakelog import Message
from lakelog_lake.errors import SelectionChanged
from lakelog_lake.landing.dispatcher import LandingSource
from lakelog_lake.log.selection import EVERYTHING, Chosen
from plugins.lake.tests.landing.kinds import any_kind
from plugins.lake.tests.landing.table_specs import land_spec, per_topic
from plugins.lake.tests.landing.tables import SMALL, assert_exactly, keys_of, land_all, make, read
from plugins.lake.tests.stores import messages, open_small

SYSTEM = "RMQ_SYS_TRACE_TOPIC"
ALL = Chosen(system_topics=True)


@pytest.fixture
def mixed(tmp_path: Path) -> LandingSource:
    """A store with messages of a system topic among others."""
    with open_small(tmp_path / "s") as store:
        for number, message in enumerate(messages(120)):
            store.put(message)
            if number % 3 == 0:
                store.put(Message(SYSTEM, b"trace", queue_id=0))
    return LandingSource(tmp_path / "s", "S")


@any_kind
def test_another_choice_is_refused(kind: str, mixed: LandingSource, tmp_path: Path) -> None:
    land_all(mixed, make(kind, tmp_path / "t"))
    with pytest.raises(
        SelectionChanged, match=r"but those of system topics .* land in a new table"
    ):
        land_all(attrs.evolve(mixed, chosen=ALL), make(kind, tmp_path / "t"))
    assert read(kind, tmp_path / "t").num_rows == 120
    assert land_all(mixed, make(kind, tmp_path / "t")) == []
    land_all(attrs.evolve(mixed, chosen=ALL), make(kind, tmp_path / "new"))
    assert_exactly(kind, tmp_path / "new", keys_of(mixed.path, "S"))
    with pytest.raises(SelectionChanged, match="of system topics too"):
        land_all(mixed, make(kind, tmp_path / "new"))


def test_topics_with_tables_of_their_own_may_come_later(
    mixed: LandingSource, tmp_path: Path
) -> None:
    """The table of a topic begins with its first message, whenever it is made."""
    wanted = per_topic("delta", tmp_path / "t")
    land_spec(mixed, wanted, SMALL)
    land_spec(attrs.evolve(mixed, chosen=ALL), wanted, SMALL)
    found = read("delta", Path(wanted.to.partition(":")[2].replace("{topic}", SYSTEM)))
    assert found.num_rows == 40
    land_spec(mixed, wanted, SMALL)


@pytest.mark.parametrize(
    "other",
    [ALL, Chosen(topics=frozenset({"a"})), Chosen(since_ms=5), Chosen(topics=frozenset({"b"}))],
)
def test_every_choice_is_told_apart(other: Chosen) -> None:
    assert other.description() != EVERYTHING.description()
    assert len({each.description() for each in (other, ALL, Chosen(since_ms=6))}) == 3 - (
        other == ALL
    )
