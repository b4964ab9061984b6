"""Commits by the word of a process that means harm, or knows no better: it alone is put out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.tests.attach.support import a_hello, a_peer, an_owned_hub, offsets_of, open_alone, told
from lakelog.attach import commits
from lakelog.attach.lane import MOST_ASKED, Lane
from lakelog.attach.packets import Nonsense, send
from lakelog.errors import StoreError

GOOD: dict[str, Any] = {"ask": "commit", "group": "g", "topic": "t", "offsets": [[0, 5]]}
MUCH = [[queue, 0] for queue in range(commits.MOST_PLACES + 1)]


@contextmanager
def attached(path: Path) -> Iterator[socket.socket]:
    with a_peer(path) as peer:
        send(peer, a_hello())
        welcome = told(peer)
        assert welcome is not None
        assert welcome["protocol"] == 1
        yield peer


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": None},
        {"group": ["g"]},
        {"topic": 3},
        {"offsets": {"0": 5}},
        {"offsets": [5]},
        {"offsets": [[0, 5, 6]]},
        {"offsets": [[0]]},
        {"offsets": [[0, "5"]]},
        {"offsets": [[0, 5.0]]},
        {"offsets": [[True, 5]]},
        {"offsets": [[[0], 5]]},
        {"offsets": MUCH},
        {"more": 1},
        {"id": "1"},
        {"id": True},
        {"ask": "forget"},
        {"ask": ["commit"]},
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_nonsense_puts_that_one_out_alone(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with an_owned_hub(tmp_path) as (store, _), attached(tmp_path) as good:
        with attached(tmp_path) as bad:
            send(bad, {**GOOD, "id": 1, **wrong})
            said = told(bad)
            assert said is not None
            assert said.keys() == {"dropped"}
            assert told(bad) is None
        assert store.groups() == {}
        send(good, {**GOOD, "id": 7})
        assert told(good) == {"id": 7, "committed": 1}
        assert store.groups() == {"g": {"t": {0: 5}}}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"group": ""}, "letters a-z"),
        ({"group": "g/h"}, "letters a-z"),
        ({"group": "g" * 256}, "255"),
        ({"topic": ""}, "joins topic and group"),
        ({"topic": "a@b"}, "joins topic and group"),
        ({"topic": "t" * 300}, "takes 300 bytes"),
        ({"topic": "t" * 9000}, "topic 'tttt"),
        ({"topic": "\ud800"}, "UTF-8"),
        ({"topic": "../up"}, "cannot name a directory"),
        ({"offsets": [[-1, 5]]}, "queue -1"),
        ({"offsets": [[1 << 31, 5]]}, "queue 2147483648"),
        ({"offsets": [[0, -5]]}, "offset -5"),
        ({"offsets": [[0, 1 << 63]]}, "offset 9223372036854775808"),
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_what_cannot_be_kept_is_answered(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    with an_owned_hub(tmp_path) as (store, _), attached(tmp_path) as peer:
        send(peer, {**GOOD, **wrong, "id": 1})
        said = told(peer)
        assert said is not None
        assert why in said["failed"]
        send(peer, {**GOOD, "id": 2})
        assert told(peer) == {"id": 2, "committed": 1}
        assert store.groups() == {"g": {"t": {0: 5}}}
    with open_alone(tmp_path) as store:
        assert store.groups() == {"g": {"t": {0: 5}}}


def test_the_longest_names_and_numbers_fit_into_a_packet(tmp_path: Path) -> None:
    most = {(1 << 31) - 1 - n: (1 << 63) - 1 for n in range(commits.MOST_PLACES)}
    (asked,) = commits.asked_for("g" * 255, "\U0001f600" * 63, most)
    with an_owned_hub(tmp_path) as (store, _), attached(tmp_path) as peer:
        send(peer, {**asked, "id": 1 << 62})
        assert told(peer) == {"id": 1 << 62, "committed": commits.MOST_PLACES}
        assert store.groups() == {"g" * 255: {"\U0001f600" * 63: most}}


def test_others_fill_no_more_than_a_part_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MOST_KEPT", 3)
    with open_alone(tmp_path) as store:
        table = offsets_of(store)
        asked = [commits.AskedCommit("g", "t", {n: 1, n + 1: 1}) for n in (0, 2, 4)]
        answers = commits.keep(table, asked)
        assert answers[0] == {"committed": 2}
        assert all("no room" in answer["failed"] for answer in answers[1:])
        assert store.groups() == {"g": {"t": {0: 1, 1: 1}}}


def test_one_process_has_only_so_many_questions_at_once() -> None:
    lane = Lane[int]("never", lambda asked: [{}] * len(asked))
    lane._thread = object()  # type: ignore[assignment]  # nobody answers
    one: Any = object()  # who asks is only counted
    other: Any = object()
    for number in range(MOST_ASKED):
        lane.add(one, number, number)
    with pytest.raises(Nonsense, match="wait already"):
        lane.add(one, 0, 0)
    lane.add(other, 0, 0)


def test_an_error_that_nobody_thought_of_is_an_answer_too() -> None:
    def fail(_asked: object) -> list[Any]:
        raise OSError(5, "what a disk")

    said = list[dict[str, Any]]()

    class Somebody:
        def say(self, **what: Any) -> None:
            said.append(what)

    lane = Lane[int]("fails", fail)
    lane.add(Somebody(), 3, 0)  # type: ignore[arg-type]  # stands in for an attached process
    lane.end()
    assert said == [{"id": 3, "failed": "[Errno 5] what a disk"}]


def test_commits_that_wait_share_a_write(tmp_path: Path) -> None:
    with open_alone(tmp_path) as store:
        table = offsets_of(store)
        asked = [commits.AskedCommit(f"g{n}", "t", {0: n}) for n in range(20)]
        assert commits.keep(table, asked) == [{"committed": 1}] * 20
        assert table._written == 1
    with pytest.raises(StoreError, match="closed"):
        commits.keep(table, asked)
