"""What else a process does to a store while calls fail under it: open, mend or read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import lakelog
import lakelog.aio
from lakelog import Store
from lakelog.errors import BadSegment, NotAStore
from tests.faults.deleting import delete
from tests.faults.load import put_under_load
from tests.faults.workload import (
    SEGMENT_BYTES,
    TOPIC,
    Tell,
    keep_house,
    message_of,
    opened,
    put_all,
    put_beside,
    put_until_killed,
    put_while_slow,
    why,
)

STOP: Final = "stop"
"""The file beside a store that ends those who follow it."""
_PAUSE_SECONDS: Final = 0.01


def open_and_close(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    store = opened(path, settings, tell)
    if store is None:
        return
    try:
        store.close()
    except lakelog.LakelogError as error:
        tell({"failed": "close", "why": why(error)})


def recover(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    _tried(lambda: lakelog.recover(path, segment_size_bytes=SEGMENT_BYTES, **settings), tell)


def repair(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    _tried(lambda: lakelog.repair(path, segment_size_bytes=SEGMENT_BYTES, **settings), tell)


def _tried(do: Callable[[], object], tell: Tell) -> None:
    try:
        do()
    except lakelog.LakelogError as error:
        tell({"failed": "all", "why": why(error)})
    else:
        tell({"done": True})


def read(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    """Read everything in every way, without owning it."""
    ways: tuple[Callable[[Store], object], ...] = (
        lambda store: _scan(store, tell),
        lambda store: [store.get(topic, 0, 0, 100) for topic in store.topics()],
        lambda store: store.query(TOPIC, "first-1"),
        lambda store: store.look_up(store.min_offset),
        lambda store: store.flushed_offset,
        lambda store: store.get_columns(TOPIC, 0, 0),
        lambda store: list(store.read(TOPIC, 1)),
        lambda store: store.offset_by_time(TOPIC, 0, 1),
        lambda store: store.query_offsets(TOPIC, "first-1"),
        lambda store: store.consumer("group", TOPIC, start="earliest").poll(),
        lambda store: store.wait_dispatched(),
        lambda store: _in_a_loop(store.get_async(TOPIC, 0, 0)),
        lambda store: _in_a_loop(_read_async(store)),
    )
    try:
        with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES, **settings) as store:
            for way in ways:
                _read(way, store, tell)
    except lakelog.LakelogError as error:
        tell({"failed": "open", "why": why(error)})


def _read(way: Callable[[Store], object], store: Store, tell: Tell) -> None:
    """Whatever cannot be read is an error of lakelog's own, and says which file it is."""
    try:
        way(store)
    except lakelog.LakelogError as error:
        tell({"failed": "read", "why": why(error)})


def _in_a_loop(work: Awaitable[object]) -> object:
    """As ``asyncio.run``, which starts a thread of its own at the end."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def _read_async(store: Store) -> int:
    return len([each async for each in store.read_async(TOPIC, 0)])


def _scan(store: Store, tell: Tell) -> None:
    for message in store.scan(on_damage=lambda damage: tell({"damage": damage.offset})):
        tell({"seen": message.properties["KEYS"]})


def follow(path: Path, settings: Mapping[str, Any], _run: str, tell: Tell) -> None:
    """Read beside owners that come and go, again and again; tell what appears and vanishes."""
    seen = dict[str, int]()
    stopping = False
    while not stopping:
        stopping = path.with_name(STOP).exists()  # before: all is over when it looks once more
        try:
            _follow(path, settings, seen, tell)
        except (NotAStore, BadSegment):  # it is being made
            time.sleep(_PAUSE_SECONDS)


def _follow(path: Path, settings: Mapping[str, Any], seen: dict[str, int], tell: Tell) -> None:
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES, **settings) as store:
        for _ in range(10):  # then anew, as a reader that has just come
            found = {each.properties["KEYS"]: each.physical_offset for each in store.scan()}
            for key, offset in found.items():
                if seen.setdefault(key, offset) != offset:
                    tell({"moved": key, "from": seen[key], "to": offset})
            vanished = sorted(set(seen) - set(found))
            if vanished:
                tell({"vanished": vanished})
            tell({"looked": len(found)})
            time.sleep(_PAUSE_SECONDS)


def put_in_a_loop(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, put, read, and close, all of it in an event loop."""
    _in_a_loop(_in_loop(path, settings, run, tell))


async def _in_loop(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    try:
        store = await lakelog.aio.open(path, segment_size_bytes=SEGMENT_BYTES, **settings)
    except lakelog.LakelogError as error:
        tell({"failed": "open", "why": why(error)})
        return
    for key in (f"{run}-{at}" for at in range(3)):
        try:
            result = await store.put(message_of(key))
            await store.get(TOPIC, 0, 0)
        except lakelog.LakelogError as error:
            tell({"failed": key, "why": why(error)})
        else:
            tell({"ack": key, "end": result.end_offset, "after_failure": False, "after_strike": 0})
    await store.close()
    tell({"closed": True})


WORKLOADS: Final = {
    "all": put_all,
    "house": keep_house,
    "loop": put_in_a_loop,
    "until-killed": put_until_killed,
    "load": put_under_load,
    "slow": put_while_slow,
    "beside": put_beside,
    "open": open_and_close,
    "recover": recover,
    "repair": repair,
    "read": read,
    "follow": follow,
    "delete": delete,
}
