"""A producer that its owner has put out comes back with its next put; what was open has failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.attach.support import an_owned_hub, until
from lakelog import Message, PutRefused
from lakelog.attach.producer import Producer, connect
from lakelog.errors import StoreError
from lakelog.ring.layout import AT_TAIL
from lakelog.ring.reading import RingReader


def a_put(producer: Producer, body: bytes = b"x") -> int:
    return producer.put(Message("t", body, queue_id=0)).queue_offset


def spoil(producer: Producer, hub: Any) -> None:
    """Nonsense into its ring, of which the owner hears, and nobody else yet."""
    until(lambda: bool(hub.clients()))
    link = producer._line.link
    link.writer._words[AT_TAIL] = 1 << 60
    os.eventfd_write(link.bell.fileno(), 1)
    until(lambda: not hub.clients())


def test_the_next_put_attaches_anew(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (store, hub):
        producer = connect(tmp_path)
        for round_ in range(3):
            assert a_put(producer) == round_
            spoil(producer, hub)
            with pytest.raises(PutRefused, match="put this process out: its ring holds nonsense"):
                a_put(producer)
        assert a_put(producer) == 3
        assert len(hub.clients()) == 1
        producer.close()
        assert store.wait_dispatched()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"record_crc": True}, {"record_crc": False}, "the owner has record_crc=False now"),
        ({"record_crc": False}, {"record_crc": True}, "the owner has record_crc=True now"),
        (
            {"max_message_size_bytes": 16 << 10},
            {"max_message_size_bytes": 4 << 10},
            "the owner has max_message_size_bytes=4096 now",
        ),
    ],
)
def test_a_successor_with_other_settings(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], why: str
) -> None:
    body = b"x" * 8000
    with an_owned_hub(tmp_path, **before):
        producer = connect(tmp_path)
        assert a_put(producer) == 0
    open_puts: list[BaseException] = []
    thread = threading.Thread(target=_put_and_note, args=(producer, body, open_puts))
    thread.start()
    until(lambda: bool(producer._line._unsent))
    with an_owned_hub(tmp_path, **after) as (_, hub):
        thread.join(30)
        [error] = open_puts
        assert isinstance(error, PutRefused)
        assert why in str(error)
        assert "put again" in str(error)
        assert a_put(producer) == 1
        assert len(hub.clients()) == 1
        producer.close()


def _put_and_note(producer: Producer, body: bytes, into: list[BaseException]) -> None:
    try:
        a_put(producer, body)
    except PutRefused as error:
        into.append(error)


def test_one_error_of_the_owner_is_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        producer = connect(tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(hub._service, "_append", lambda _: 1 // 0)
            for _ in range(3):  # each time with the reason
                with pytest.raises(PutRefused, match="ZeroDivisionError"):
                    a_put(producer)
        assert a_put(producer) == 0
        producer.close()
        again = connect(tmp_path)
        assert a_put(again) == 1
        again.close()


def test_an_error_of_the_owner_is_not_called_nonsense_of_the_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_owned_hub(tmp_path):
        producer = connect(tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(RingReader, "take", lambda *_: 1 // 0)
            with pytest.raises(PutRefused, match="the owner failed to serve it") as caught:
                a_put(producer)
        assert "nonsense" not in str(caught.value)
        assert a_put(producer) == 0
        producer.close()


@pytest.mark.parametrize(
    "first",
    [
        lambda producer: producer.flush(),
        lambda producer: producer.commit("g", "t", {0: 1}),
        lambda producer: producer.put_async(Message("t", b"x")).result(30),
        lambda producer: producer.put_batch_async([Message("t", b"x")] * 2).result(30),
        lambda producer: producer.put_batch([Message("t", b"x")] * 2),
    ],
)
def test_each_verb_attaches_anew(tmp_path: Path, first: Callable[[Producer], object]) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        producer = connect(tmp_path)
        spoil(producer, hub)
        with pytest.raises(PutRefused):
            a_put(producer)
        first(producer)
        until(lambda: len(hub.clients()) == 1)  # the owner counts it soon after it has let it in
        producer.close()


def test_many_threads_come_back_together(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        producer, good = connect(tmp_path), [0] * 8
        spoil(producer, hub)

        def work(at: int) -> None:
            while good[at] < 20:
                try:
                    a_put(producer)
                    good[at] += 1
                except PutRefused:
                    continue

        threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert good == [20] * 8
        assert len(hub.clients()) == 1
        producer.close()


def test_a_callback_of_what_failed_may_put_again(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        producer, offsets = connect(tmp_path), list[int]()
        spoil(producer, hub)
        future = producer.put_batch_async([Message("t", b"x", queue_id=0)])
        future.add_done_callback(lambda _: offsets.append(a_put(producer)))
        with pytest.raises(PutRefused):
            future.result(30)
        until(lambda: offsets == [0])
        producer.close()


def test_who_is_let_in_no_more_hears_why_and_can_close(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        producer = connect(tmp_path, timeout_ms=50)
        spoil(producer, hub)
        with pytest.raises(PutRefused, match="nonsense"):
            a_put(producer)
    for _ in range(2):
        with pytest.raises(PutRefused, match="no other one came in 50 ms"):
            a_put(producer)
        with pytest.raises(StoreError, match="no other one came in 50 ms"):
            producer.commit("g", "t", {0: 1})
    with an_owned_hub(tmp_path):
        assert a_put(producer) == 0
        producer.close()
    with pytest.raises(PutRefused, match="closed"):
        a_put(producer)
