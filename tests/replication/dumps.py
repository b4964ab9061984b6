"""The content of a store as the real store of RocketMQ reads it, to compare master and copy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.oracle.java import Oracle
from tests.support.rows import Row, by_kind, difference

SEGMENT: Final = 1 << 20
OF_LAKELOG: Final = {"mappedFileSizeCommitLog": str(SEGMENT)}
OF_BROKER: Final = {
    **OF_LAKELOG,
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
}


def check_equal(ours: list[Row], theirs: list[Row], *, was_killed: bool = False) -> None:
    """Fail with the first difference between the rows of lakelog and a broker; none may be empty.

    :param was_killed: whether the broker was killed under load. Its index then lacks keys, so only
        the key look-ups of lakelog are checked, each of which must have a result
    """
    assert theirs
    if was_killed:
        assert all(row["physOffsets"] for row in ours if row["kind"] == "query")
        ours, theirs = ([row for row in each if row["kind"] != "query"] for each in (ours, theirs))
    found = difference(ours, theirs)
    assert not found, found


def contents(oracle: Oracle, store: Path, options: Mapping[str, str]) -> list[Row]:
    """Return messages by log, queue and key, without the state of the directory."""
    kinds = by_kind(oracle.dump(store, options))
    assert not kinds["badrec"]
    assert not kinds["msgerr"]
    del kinds["store"]
    return [row for kind in sorted(kinds) for row in kinds[kind]]
