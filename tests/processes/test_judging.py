"""The judge of the kill tests finds what it is there for: each planted fault is an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog import Message
from tests.processes.group import prepared
from tests.processes.judging import check
from tests.processes.words import JOURNALS, STORE, TOPIC, body_of, message_of, queue_of

NAME: Final = "p0.1"
KEYS: Final = [f"{NAME}-{number}" for number in range(6)]
FIRST_QUEUE: Final = queue_of(KEYS[0])
OTHER_BODY: Final = Message(TOPIC, body_of(KEYS[0]) + b"x", queue_id=FIRST_QUEUE, keys=KEYS[0])
PUT: Final = "begun 0 0; acked 0 0 {0}"


def judged(folder: Path, put: Sequence[int | Message], told: str, seen: str | None) -> int:
    """Put messages, tell what a producer and perhaps a reader say, and judge.

    :param put: numbers of messages, or others
    :param told: lines; a number in braces stands for the place of the message put as that one
    """
    prepared(folder)
    with lakelog.open(folder / STORE, flush="timed") as store:
        messages = [message_of(KEYS[each]) if isinstance(each, int) else each for each in put]
        places = [store.put(each).physical_offset for each in messages]
        assert store.wait_dispatched(timeout_ms=60_000)
    for name, text in ((NAME, told), ("reader0", seen)):
        if text is not None:
            lines = text.format(*places).replace("; ", "\n")
            (folder / JOURNALS / name).write_text(f"{lines}\n" if lines else "")
    return check(folder)["found"]


def test_what_is_right_passes(tmp_path: Path) -> None:
    lines = [PUT.replace("0", str(number)) for number in range(len(KEYS))]
    lines += ["begun 6 6", "begun 7 8", "cut of"]
    saw, seen = [0, 0], []
    for number, key in enumerate(KEYS):
        queue = queue_of(key)
        seen.append(f"saw {queue} {saw[queue]} {{{number}}} {key}")
        saw[queue] += 1
    found = judged(tmp_path / "g", range(len(KEYS)), "; ".join(lines), "; ".join(seen))
    assert found == len(KEYS)


WRONG: Final[dict[str, tuple[list[int | Message], str, str | None]]] = {
    "are lost": ([0], f"{PUT}; begun 1 1; acked 1 1 999", None),
    "are elsewhere": ([0], "begun 0 0; acked 0 0 77", None),
    "refused ones are there": ([0], "begun 0 0; refused 0 0 OS_PAGE_CACHE_BUSY 'x'", None),
    "not in its order": ([1, 0], "begun 0 0; begun 1 1", None),
    "never put": ([0, 1], "begun 0 0", None),
    "a part is there": ([1, 2], "begun 0 2", None),
    "is at 0 and at": ([0, 0], "begun 0 0", None),
    "has another body": ([OTHER_BODY], "begun 0 0", None),
    "saw 0 of 1": ([0], PUT, ""),
    "and there is": ([0], PUT, f"saw {FIRST_QUEUE} 0 0 {NAME}-9"),
    "UNEXPECTED anything": ([0], f"{PUT}; UNEXPECTED anything", None),
}


@pytest.mark.parametrize("error", WRONG)
def test_what_is_wrong_is_found(tmp_path: Path, error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        judged(tmp_path / "g", *WRONG[error])
