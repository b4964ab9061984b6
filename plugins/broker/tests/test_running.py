"""A running broker: a failure ends no work, and a clean end saves all progress."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import PutResult, StoredMessage
from lakelog.dispatch import Arrivals
from lakelog_broker.codes import Refused
from lakelog_broker.embedded import running_broker
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state import ArrivalWaits, Member, Peer
from lakelog_queues.store import delays_of
from plugins.broker.tests.support import bodies, dispatched, message_of_a_client


async def _delivered(store: lakelog.Store, count: int, **properties: str) -> None:
    async with running_broker(store, BrokerSettings(port=0)) as broker:
        present = (store.queue_bounds("Orders", 0) or (0, 0))[1]
        for number in range(count):
            broker.appender.append(message_of_a_client(b"%d" % number, **properties))
        while (store.queue_bounds("Orders", 0) or (0, 0))[1] < present + count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "300"}])
def test_delivery_goes_on_after_an_error(
    store: lakelog.Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, str],
) -> None:
    delays, errors = delays_of(store), iter([OSError("the disk is away")])
    assert delays is not None
    access = delays.access
    read = access.queue_units

    def failing_once(*arguments: Any) -> Any:
        for error in errors:
            raise error
        return read(*arguments)

    monkeypatch.setattr(access, "queue_units", failing_once)
    asyncio.run(_delivered(store, 2, **properties))
    assert bodies(store, "Orders") == [b"0", b"1"]
    assert "again" in caplog.text


def test_a_clean_end_saves_all_progress(store: lakelog.Store) -> None:
    asyncio.run(_delivered(store, 3, DELAY="1"))
    asyncio.run(_delivered(store, 3, TIMER_DELAY_MS="200"))
    dispatched(store)
    first = bodies(store, "Orders")

    async def again() -> None:
        async with running_broker(store, BrokerSettings(port=0)):
            await asyncio.sleep(0.5)  # were there more, it would be due

    asyncio.run(again())
    assert bodies(store, "Orders") == first
    assert len(first) == 6


def test_an_answer_to_a_check_counts_although_puts_wait_for_the_disk(tmp_path: Path) -> None:
    """The producer answers at once, with the offsets of the new half message."""

    async def work(store: lakelog.Store) -> bool:
        settings = BrokerSettings(port=0, transaction_timeout_s=0)
        outcome = asyncio.get_running_loop().create_future()
        async with running_broker(store, settings) as broker:

            class Answering(Peer):
                def check_transaction(self, half: StoredMessage) -> None:
                    place = half.physical_offset, half.queue_offset
                    outcome.set_result(broker.transactions.end(*place, True))

            broker.members.join_producers("producers", Member("client", Answering(), 0.0))
            half = message_of_a_client(b"x", TRAN_MSG="true", PGROUP="producers")
            put = broker.appender.append(half)
            assert not isinstance(put, PutResult)
            await put
            async with asyncio.timeout(60):
                return bool(await outcome)

    with lakelog.open(tmp_path / "store", mode="exclusive", flush="inline") as store:
        assert asyncio.run(work(store))
        assert bodies(store, "Orders") == [b"x"]


def test_only_requests_of_clients_make_the_store_fill_its_queues_at_once() -> None:
    arrivals, ends = Arrivals(), {("t", 0): 0}
    waits = ArrivalWaits(arrivals, lambda topic, queue_id: ends[(topic, queue_id)])

    def has_grown() -> bool:
        return ends["t", 0] > 0

    async def main() -> None:
        running = asyncio.create_task(waits.run())
        background = asyncio.create_task(waits.until([("t", 0)], 60, has_grown, is_urgent=False))
        await asyncio.sleep(0)
        assert not arrivals.has_waiters
        request = asyncio.create_task(waits.until([("t", 0)], 60, has_grown))
        await asyncio.sleep(0)
        assert arrivals.has_waiters
        ends["t", 0] = 1
        arrivals.notify()
        assert await asyncio.gather(background, request) == [True, True]
        arrivals.close()
        await running

    asyncio.run(main())


def test_very_many_waiting_requests_look_in_turns_and_end_at_once() -> None:
    """They would keep all others waiting, and a stop."""
    count, looks = 1000, 0
    waits = ArrivalWaits(Arrivals(), lambda _topic, _queue_id: 0)

    def look() -> bool:
        nonlocal looks
        looks += 1
        return False

    async def main() -> list[BaseException | bool]:
        nonlocal looks
        asked = [asyncio.create_task(waits.until([("t", 0)], 60, look)) for _ in range(count)]
        await asyncio.sleep(0)
        assert looks == count
        waits.wake("t", 0)
        for _ in range(3):
            before = looks
            await asyncio.sleep(0)
            assert looks <= before + count // 10
        while looks < 2 * count:
            await asyncio.sleep(0)
        waits.close()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert looks == 2 * count
        return found

    assert {type(each) for each in asyncio.run(main())} == {Refused}
