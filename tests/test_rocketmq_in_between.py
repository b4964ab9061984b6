"""RocketMQ appends where a killed process of lakelog had begun to: nothing of that is ever zeroed.

The shared page of the dead is still there, of the same boot, with an intent that covers bytes which
hold messages of RocketMQ by now. A repair zeroes what an intent covers, but for the same run alone.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import lakelog
from lakelog.files.pages.shared_page import APPENDED, INTENT_END, INTENT_START, page_path
from tests.support.dying import LOST, Death, message, settings
from tests.support.rows import by_kind
from tests.support.twostores import JAVA
from tests.test_killed_in_a_copy import LATE, MORE, SIZE, START, died

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

COUNT: Final = 20
DEATHS: Final = {
    "nothing of it is whole": ("backward", LATE),
    "two of its records are whole": ("forward", 2 * SIZE + LATE),
}


def word(path: Path, at: int) -> int:
    """One of the shared page that the dead have left."""
    return int(struct.unpack_from("=q", page_path(path).read_bytes(), 8 * at)[0])


def log_of(path: Path, end: int) -> bytes:
    """What the log's first segment holds."""
    return (path / "commitlog" / f"{0:020}").read_bytes()[:end]


@pytest.mark.parametrize(
    ("how", "halt"),
    [
        ("nothing of it is whole", True),
        ("two of its records are whole", False),
        pytest.param("nothing of it is whole", False, marks=pytest.mark.slow),
        pytest.param("two of its records are whole", True, marks=pytest.mark.slow),
    ],
)
def test_what_rocketmq_appended_at_an_intent_stays(
    how: str, halt: bool, oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    order, at = DEATHS[how]
    ((death, acknowledged, _),) = died([Death(str(path), "file", order, at, filled=START)])
    assert (word(path, INTENT_START), word(path, APPENDED)) == (START, START)
    assert word(path, INTENT_END) == START + LOST * SIZE
    oracle.fill(path, JAVA, count=COUNT, halt=halt)
    before = by_kind(oracle.dump(path, JAVA))
    theirs = [row["physOffset"] for row in before["rec"]]
    assert len(theirs) >= len(acknowledged) + COUNT
    assert [each for each in theirs if START <= each < START + LOST * SIZE], "none is in the intent"
    end = theirs[-1] + before["rec"][-1]["storeSize"]
    bytes_before = log_of(path, end)

    with lakelog.open(death.path, **settings("file")) as store:
        assert log_of(path, end) == bytes_before
        more = [store.put(message(1000 + each, 60)).physical_offset for each in range(MORE)]
        with lakelog.open(death.path, **settings("file")) as beside:
            more.append(beside.put(message(2000, 60)).physical_offset)
    assert log_of(path, end) == bytes_before
    rows = by_kind(oracle.dump(path, JAVA))
    assert [row["physOffset"] for row in rows["rec"]] == theirs + more
    assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})
