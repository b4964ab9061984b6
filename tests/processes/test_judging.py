"""The judge of the kill tests finds what it is there for: each planted fault is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog import Message
from tests.processes.group import prepared
from tests.processes.judging import check
from tests.processes.words import JOURNALS, QUEUES, STORE, TOPIC, body_of, message_of, queue_of

NAME: Final = "p0.1"
COUNT: Final = 6


def _store(folder: Path, keys: list[str], *others: Message) -> dict[str, int]:
    """A store with messages of those keys; where they are."""
    prepared(folder)
    with lakelog.open(folder / STORE, flush="timed") as store:
        places = {key: store.put(message_of(key)).physical_offset for key in keys}
        for message in others:
            store.put(message)
        assert store.wait_dispatched(timeout_ms=60_000)
    return places


def _told(folder: Path, name: str, *lines: str) -> None:
    (folder / JOURNALS / name).write_text("".join(f"{line}\n" for line in lines))


def _acked(places: dict[str, int]) -> list[str]:
    return [
        line
        for at, place in enumerate(places.values())
        for line in (f"begun {at} {at}", f"acked {at} {at} {place}")
    ]


def _keys(*numbers: int) -> list[str]:
    return [f"{NAME}-{number}" for number in numbers]


def test_what_is_right_passes(tmp_path: Path) -> None:
    places = _store(tmp_path / "g", _keys(*range(COUNT)))
    _told(tmp_path / "g", NAME, *_acked(places), "begun 6 6", "begun 7 8", "cut of")
    saw = [0] * QUEUES
    lines = []
    for key, place in places.items():
        lines.append(f"saw {queue_of(key)} {saw[queue_of(key)]} {place} {key}")
        saw[queue_of(key)] += 1
    _told(tmp_path / "g", "reader0", *lines)
    counts = check(tmp_path / "g")
    assert (counts["acked"], counts["found"]) == (COUNT, COUNT)


def _lost(folder: Path) -> None:
    places = _store(folder, _keys(0, 1))
    _told(folder, NAME, *_acked(places), "begun 2 2", f"acked 2 2 {places[f'{NAME}-1'] + 500}")


def _moved(folder: Path) -> None:
    _store(folder, _keys(0))
    _told(folder, NAME, "begun 0 0", "acked 0 0 77")


def _refused_but_there(folder: Path) -> None:
    _store(folder, _keys(0))
    _told(folder, NAME, "begun 0 0", "refused 0 0 OS_PAGE_CACHE_BUSY 'x'")


def _out_of_order(folder: Path) -> None:
    _store(folder, _keys(1, 0))
    _told(folder, NAME, "begun 0 0", "begun 1 1")


def _never_put(folder: Path) -> None:
    _store(folder, _keys(0, 1))
    _told(folder, NAME, "begun 0 0")


def _end_of_a_batch(folder: Path) -> None:
    _store(folder, _keys(1, 2))
    _told(folder, NAME, "begun 0 2")


def _twice(folder: Path) -> None:
    key = _keys(0)[0]
    _store(folder, [key], message_of(key))
    _told(folder, NAME, "begun 0 0")


def _another_body(folder: Path) -> None:
    key = _keys(0)[0]
    other = Message(TOPIC, body_of(key) + b"x", queue_id=queue_of(key), keys=key)
    _store(folder, [], other)
    _told(folder, NAME, "begun 0 0")


def _reader_saw_less(folder: Path) -> None:
    _told(folder, NAME, *_acked(_store(folder, _keys(0))))
    _told(folder, "reader0")


def _reader_saw_another(folder: Path) -> None:
    key = _keys(0)[0]
    _told(folder, NAME, *_acked(_store(folder, [key])))
    _told(folder, "reader0", f"saw {queue_of(key)} 0 0 {NAME}-9")


def _unexpected(folder: Path) -> None:
    _told(folder, NAME, *_acked(_store(folder, _keys(0))), "UNEXPECTED anything")


FAULTS: Final[dict[str, Callable[[Path], None]]] = {
    "are lost": _lost,
    "are elsewhere": _moved,
    "refused ones are there": _refused_but_there,
    "not in its order": _out_of_order,
    "never put": _never_put,
    "a part is there": _end_of_a_batch,
    "is at 0 and at": _twice,
    "has another body": _another_body,
    "saw 0 of 1": _reader_saw_less,
    "and there is": _reader_saw_another,
    "UNEXPECTED anything": _unexpected,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_found(fault: str, tmp_path: Path) -> None:
    FAULTS[fault](tmp_path / "g")
    with pytest.raises(AssertionError, match=fault):
        check(tmp_path / "g")
