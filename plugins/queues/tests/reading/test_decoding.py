"""Bodies that an append callback changes are restored by all ways of reading."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from core.tests.processes.test_group_sync import fork
from core.tests.registry.samples import plugin
from core.tests.store.support import open_small
from examples.compress_bodies import Compressing, CompressSettings
from examples.compress_bodies import plugin as compressing
from lakelog import Message, Store, aio
from lakelog.errors import BadStrategy, DecodeFailed
from lakelog.format.compression import decompress
from lakelog.format.layout import COMPRESSED
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Factory, Kind
from lakelog.message import StoredMessage
from tests.support.commands import invoke

pytestmark = pytest.mark.both_ways

COUNT: Final = 700
"""More messages than are read one by one."""
BODIES: Final = [b"%04d " % at * 100 if at % 3 else b"%04d" % at for at in range(COUNT)]
"""Bodies; some are so short that they are stored unchanged."""
GIVEN: Final[dict[str, Any]] = {
    "plugins": None,
    "append": "compress",
    "segment_size_bytes": 64 << 10,
    "flush": "none",
}


def offers(make: Callable[[Any, Any], Any], name: str = "compress") -> Any:
    """A plugin that offers an append callback."""
    factory = Factory(Kind.APPEND_CALLBACK, name, CompressSettings, make)
    return plugin("changing", lakelog_append_callbacks=lambda: [factory])


def opened(path: Path, *more: object, **given: Any) -> Store:
    """Open a store with the installed plugins, the key index and the callback of these tests."""
    import lakelog_hash_index.plugin as index

    return lakelog.open(path, **{**GIVEN, "plugins": [index, *(more or (compressing,))], **given})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("s") / "s"
    with opened(path) as store:
        half = COUNT // 2
        store.put_batch(
            [
                Message("t", body, "odd" if at % 2 else "even", f"k{at}", queue_id=0)
                for at, body in enumerate(BODIES[:half])
            ]
        )
        tags = ["odd" if at % 2 else "even" for at in range(half, COUNT)]
        keys = [f"k{at}" for at in range(half, COUNT)]
        store.put_columns("t", BODIES[half:], queue_ids=0, tags=tags, keys=keys)
    return path


@pytest.fixture(params=["write", "read"], scope="module")
def store(path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(path, mode=request.param) as store:
        yield store


def bodies(messages: Sequence[StoredMessage]) -> list[bytes]:
    assert not any(each.sys_flag & COMPRESSED for each in messages)
    return [each.body for each in messages]


def of_pieces(store: Store) -> list[StoredMessage]:
    batches = [each for each in store.scan_pieces() if isinstance(each, RecordBatch)]
    return [batch.message(at) for batch in batches for at in range(len(batch))]


def columns(store: Store, **more: Any) -> list[bytes]:
    batch = store.get_columns("t", 0, 0, COUNT, **more).batch
    assert not any(flag & COMPRESSED for flag in batch["sys_flag"].to_pylist())
    found: list[bytes] = batch["body"].to_pylist()
    return found


async def by_async_get(store: Store) -> list[bytes]:
    return bodies((await store.get_async("t", 0, 0, COUNT)).messages)


async def by_async_store(path: Path) -> list[bytes]:
    import lakelog_hash_index.plugin as index

    async with aio.open(path, **{**GIVEN, "plugins": [index, compressing], "mode": "read"}) as s:
        return bodies([each async for each in s.read("t", 0)])


WAYS: Final[dict[str, Callable[[Store], list[bytes]]]] = {
    "get a few": lambda s: bodies([m for at in range(0, COUNT, 10)
        for m in s.get("t", 0, at, 10).messages]),
    "get many": lambda s: bodies(s.get("t", 0, 0, COUNT).messages),
    "a store in an event loop": lambda s: asyncio.run(by_async_store(s.path)),
    "get_async": lambda s: asyncio.run(by_async_get(s)),
    "read": lambda s: bodies(list(s.read("t", 0))),
    "follow": lambda s: bodies(list(islice(s.read("t", 0, follow=True), COUNT))),
    "scan": lambda s: bodies(list(s.scan())),
    "scan_pieces": lambda s: bodies(of_pieces(s)),
    "look_up": lambda s: bodies([s.look_up(each.physical_offset) for each in s.scan()]),
    "look_up by id": lambda s: bodies([s.look_up(each.message_id) for each in s.scan()]),
    "query": lambda s: bodies([s.query("t", f"k{at}")[0] for at in range(COUNT)]),
    "get_columns": columns,
    "get_columns, unpacked": lambda s: columns(s, decompress=True),
    "get_columns, in another order of columns": lambda s: columns(s, columns=["sys_flag", "body"]),
    "consumer": lambda s: bodies(s.consumer("g", "t", start="earliest").poll(COUNT)),
}  # fmt: skip  # one way a line


@pytest.mark.sample(20)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_bodies_that_were_put(store: Store, way: str) -> None:
    assert WAYS[way](store) == BODIES


def test_with_tags(store: Store) -> None:
    assert bodies(store.get("t", 0, 0, COUNT, tags="odd").messages) == BODIES[1::2]
    assert columns(store, tags="odd") == BODIES[1::2]


def test_what_is_stored_is_short_and_what_clients_of_rocketmq_unpack(path: Path) -> None:
    with lakelog.open(path, mode="read", plugins=[]) as store:
        stored = list(store.scan())
    assert [decompress(each.body, each.sys_flag) for each in stored] == BODIES
    assert sum(len(each.body) for each in stored) < sum(map(len, BODIES)) / 4
    assert {each.sys_flag & 0x701 for each in stored} == {0, 0x301}


def test_the_default_callback_costs_no_call_for_a_message(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put_batch([Message("t", b"x", queue_id=0)] * 5)
        store.wait_dispatched()
        found = [each for each in store.scan_pieces() if isinstance(each, RecordBatch)]
    assert [each.decoder for each in found] == [None]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"append": "compress"}, "the append callback 'compress' is not installed; bodies are ret"),
        ({}, "the append callback 'compress' has stored its bytes, and 'rocketmq' is in use"),
    ],
    ids=["not installed", "not chosen"],
)
def test_who_reads_without_the_callback_is_warned(
    path: Path, caplog: pytest.LogCaptureFixture, given: dict[str, Any], said: str
) -> None:
    opened(path).close()
    assert "has stored its bytes" not in caplog.text
    with lakelog.open(path, mode="read", plugins=[], **given) as store:
        message = next(store.read("t", 0, 1))
    assert message.body != decompress(message.body, message.sys_flag) == BODIES[1]
    assert said in caplog.text


def test_verify_recovery_and_rebuild_look_at_the_stored_bytes(tmp_path: Path) -> None:
    """None of them needs the callback: checksums are of the body as stored, keys are readable."""

    def put_and_die() -> None:
        store = opened(tmp_path / "s")
        store.put_batch([Message("t", each, keys="k", queue_id=0) for each in BODIES])
        store.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(fork(put_and_die), 0)[1] == signal.SIGKILL
    assert lakelog.recover(tmp_path / "s").end_offset > 0
    for command, how in (("rebuild", "--queues"), ("verify", "--all")):
        said = invoke(command, tmp_path / "s", how)
        assert said.exit_code == 0, said.output
    with opened(tmp_path / "s", mode="read") as store:
        assert bodies(list(store.read("t", 0))) == BODIES
        assert len(store.query("t", "k", max_messages=COUNT)) == COUNT


# --- faults of a callback ----------------------------------------------------------------------


def wrong(answer: Callable[[Sequence[StoredMessage]], Any]) -> Any:
    """A plugin whose callback decodes by ``answer``."""

    def make(settings: Any, context: Any) -> Compressing:
        made = Compressing(settings, context)
        vars(made)["decode"] = answer
        return made

    return offers(make)


def refusing(messages: Sequence[StoredMessage]) -> Any:
    raise KeyError("no key 7")


def halved(messages: Sequence[StoredMessage]) -> Any:
    changes: dict[str, Any] = {"body": None}
    return [attrs.evolve(each, **changes) for each in messages]


MISTAKES: Final[dict[str, tuple[Callable[[Sequence[StoredMessage]], Any], str]]] = {
    "raises": (refusing, "raised KeyError: 'no key 7', decoding messages at offset 0"),
    "None": (lambda messages: None, "returned None for "),  # noqa: ARG005  # the name counts
    "too few": (lambda messages: list(messages)[:-1], "returned "),
    "bodies alone": (lambda messages: [each.body for each in messages], "for the message at off"),
    "no bodies": (halved, "returned a body of NoneType, not bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_names_the_callback_and_the_place(path: Path, mistake: str) -> None:
    """In each way of reading."""
    answer, said = MISTAKES[mistake]
    with opened(path, wrong(answer), mode="read") as store:
        own = [way for name, way in WAYS.items() if "event loop" not in name]
        for way in own if mistake == "raises" else own[:2]:
            with pytest.raises(DecodeFailed, match=said) as caught:
                way(store)
            named = "plugin 'changing': its append callback 'compress' "
            assert str(caught.value).startswith(named)
            assert "check its settings, such as a key" in str(caught.value)


def test_a_decode_that_cannot_be_called_is_found_at_open(tmp_path: Path) -> None:
    class Odd(Compressing):
        def decode(self) -> Any:  # type: ignore[override]  # that is the mistake
            return []

    with pytest.raises(BadStrategy, match=r"its append callback 'compress'.* decode"):
        opened(tmp_path / "s", offers(Odd))
