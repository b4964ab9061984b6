"""Messages by key, in every role: compiled code and plain Python find the same."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelog
from lakelog import Message, Store, accelerate
from lakelog_hash_index.shape import IndexShape
from lakelog_queues.finding.search import DEFAULT_MESSAGES
from lakelog_testing.crash.opener import owned_by
from plugins.hash_index.tests.support import index_paths, poke
from plugins.native.tests.support import ROLES, in_role

SEGMENT = 1 << 14
SETTINGS: dict[str, Any] = {
    "accelerator": "native",
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    "hash-index": {"slots": 5, "entries": 24},
}
TOPICS = ["t", "ü", "gone", "none"]
KEYS = ["Aa", "BB", "clé", "k", "unique-7", "unique-41", "none"]
"""The first two have the same hash."""
PUTS = 90
SHAPE = IndexShape(**SETTINGS["hash-index"])
FIELDS = [
    *(0, 7, 8, 15, 16, 24, 32, 36, 39),
    *(SHAPE.slot_at(slot) + more for slot in range(SHAPE.slots) for more in (0, 3)),
    *(
        SHAPE.entry_at(at) + more
        for at in range(SHAPE.entries)
        for more in (0, 3, 4, 11, 12, 15, 16, 19)
    ),
]
"""First and last bytes of the fields in an index file."""
FOUND = (None, None, DEFAULT_MESSAGES)


def filled(path: Path) -> Store:
    store = lakelog.open(path, **SETTINGS)
    fill(store)
    return store


def fill(store: Store) -> None:
    """Several segments and index files; a topic that was removed, and used again."""
    for at in range(PUTS):
        topic, keys = TOPICS[at % 3], [KEYS[at % 4], KEYS[at * 7 % 4]]
        more = {"UNIQ_KEY": f"unique-{at}"} if at % 3 else None
        store.put(Message(topic, bytes(500 + at), keys=keys, properties=more, queue_id=0))
    store.put(Message("t", bytes(5000), keys="k"))  # longer than the first read
    assert store.wait_dispatched()
    store.delete_topic("gone")
    store.put(Message("gone", b"again", keys=["Aa", "k"]))
    assert store.wait_dispatched()


@pytest.fixture(scope="module", params=ROLES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("native") / "s"
    with in_role(request.param, path, fill, **SETTINGS) as store:
        assert len(index_paths(store.path)) > 3
        assert len(segments_of(store)) > 3
        for topic in TOPICS:
            for key in KEYS:
                store.query(topic, key)  # maps the files
        yield store


def segments_of(store: Store) -> list[Path]:
    return sorted((store.path / "commitlog").iterdir())


def natively(store: Store) -> Callable[..., list[Any] | None]:
    return store._find.lookups.query


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "nothing to dispatch" not in line:  # by a reader that looks at the log, now and then
            self.lines.append(line)


def outcome(query: Callable[..., Any], *asked: Any) -> tuple[object, list[str]]:
    """The result of a query, or its error, and the lines of the log."""
    said, logger = Said(), logging.getLogger("lakelog")
    logger.addHandler(said)
    try:
        return query(*asked), said.lines
    except (TypeError, ValueError) as error:
        return (type(error), str(error)), said.lines
    finally:
        logger.removeHandler(said)


def check(store: Store, topic: Any, key: Any, since: Any, until: Any, most: Any) -> None:
    """Both ways have the same outcome."""

    def query(*_asked: Any) -> object:
        return store.query(topic, key, since_ms=since, until_ms=until, max_messages=most)

    native, before = outcome(query), accelerate.current()
    try:
        accelerate.use(None)
        plain = outcome(store._find.keys.query, topic, key, since, until, most)
    finally:
        accelerate.use(before)
    assert native == plain


@contextmanager
def damaged(changes: list[tuple[Path, int, int]]) -> Iterator[None]:
    before = [(path, path.read_bytes()) for path in {path for path, _, _ in changes}]
    try:
        for path, at, value in changes:
            poke(path, at, bytes([value]))
        yield
    finally:
        for path, content in before:
            poke(path, 0, content)


@st.composite
def windows(draw: st.DrawFn, store: Store) -> tuple[int | None, int | None]:
    times = sorted({each.store_timestamp_ms for each in store.scan()})
    near = st.sampled_from(times).flatmap(lambda ms: st.integers(ms - 1001, ms + 1001))
    first, second = draw(st.none() | near), draw(st.none() | near)
    return (
        (first, second) if first is None or second is None or first <= second else (second, first)
    )


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sound_files(store: Store, data: st.DataObject) -> None:
    topic, key = data.draw(st.sampled_from(TOPICS)), data.draw(st.sampled_from(KEYS))
    since, until = data.draw(windows(store))
    most = data.draw(st.sampled_from([1, 2, 5, 64, 1 << 62]))
    check(store, topic, key, since, until, most)
    assert natively(store)(topic, key, since, until, most) is not None


def test_what_is_found(store: Store) -> None:
    find = natively(store)
    bodies = [len(each.body) for each in find("t", "k", *FOUND) or ()]
    assert bodies == sorted(bodies, reverse=True)
    assert len(bodies) > 10
    assert [each.body for each in find("gone", "Aa", *FOUND) or ()] == [b"again"]
    assert len(find("ü", "unique-7", *FOUND) or ()) == 1
    assert find("none", "k", *FOUND) == []
    same = find("t", "Aa", *FOUND), find("t", "BB", *FOUND)
    assert all(same)
    assert all("Aa" in each.keys for each in same[0] or ())


@pytest.mark.sample(2)
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_any_damage(store: Store, data: st.DataObject) -> None:
    files = [*index_paths(store.path), *segments_of(store)]
    records = [each.physical_offset % SEGMENT for each in store.scan()]
    places = {
        "index": st.sampled_from(FIELDS),
        "commitlog": st.builds(sum, st.tuples(st.sampled_from(records), st.integers(0, 120))),
    }
    changes = []
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(files))
        at = min(data.draw(places[path.parent.name]), path.stat().st_size - 1)
        value = data.draw(st.sampled_from([0, 1, 0x80, 0xFF]) | st.integers(0, 255))
        changes.append((path, at, value))
    since, until = data.draw(windows(store))
    most = data.draw(st.sampled_from([1, 3, 64]))
    with damaged(changes):
        for key in ("Aa", "k", "unique-41", "none"):
            check(store, "t", key, since, until, most)


class Number(int):
    """A number that is no plain ``int``."""


UNUSUAL: list[tuple[Any, ...]] = [
    *[(each, "k", *FOUND) for each in ("", None, 7, b"t", "\ud800")],
    *[("t", each, *FOUND) for each in ("", None, 7, "a b", " ", "\ud800")],
    *[("t", "k", each, None, 9) for each in (-1, True, "0", 1.0, 10**9, 10**14, 10**17, 2**63)],
    *[("t", "k", None, each, 9) for each in (-1, True, 10**9, 10**14, 2**63, 10**30)],
    *[("t", "k", None, None, each) for each in (0, -1, True, None, 1.5, 2**70)],
    ("t", "k", 10**12, 10**12 - 1, 9),
    ("t", "k", Number(0), None, Number(3)),
    ("t", type("Text", (str,), {})("k"), *FOUND),
]


def test_what_is_unusual_is_left_to_python(store: Store) -> None:
    for asked in UNUSUAL:
        assert natively(store)(*asked) is None, asked
        check(store, *asked)
    for ms in (0, 10**8 - 1, 10**11, 10**14 - 1, 2**63 - 1):
        check(store, "t", "k", ms, None, 64)
        check(store, "t", "k", None, ms, 64)
        assert natively(store)("t", "k", ms, ms, 64) == []


def test_keys_and_properties_by_hand(tmp_path: Path) -> None:
    odd = [b"KEYS\x01a  b\x02", b"KEYS\x01a\x02KEYS\x01b\x02", b"KEYS\x01a\x02KEYS\x01\x02"]
    odd += [b"UNIQ_KEY\x01a b\x02", b"UNIQ_KEY\x01a\x01b\x02", b"KEYS\x01\xff\xfe a\x02"]
    odd += [b"KEYS\x01a\x02UNIQ_KEY\x01b\x02KEYS", b"XKEYS\x01a\x02KEYS2\x01b\x02"]
    with lakelog.open(tmp_path / "s", **SETTINGS) as store:
        for each in odd:
            store.put(Message("t", b"", properties=each))
        assert store.wait_dispatched()
        for key in ("a", "b", "\ufffd\ufffd", "a\x01b"):
            check(store, "t", key, *FOUND)
        assert len(store.query("t", "a")) > 1


def test_segments_that_were_deleted_or_are_not_mapped(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        store.flush()
        everything = [store.query("t", key) for key in KEYS]
        log, positions = owned_by(store).log, owned_by(store).positions
        for _ in range(3):
            log.segments.open_segments.pop(log.segments.first_offset, None)
            for key, expected in zip(KEYS, everything, strict=True):
                assert store.query("t", key) == [
                    each for each in expected if each.physical_offset >= positions.minimum
                ]
                check(store, "t", key, *FOUND)
            positions.minimum = log.segments.exclude_first()


class _EncodedInPython(Message):
    """A message that compiled code leaves to Python, whose clock a test can set."""


def test_a_window_that_begins_and_ends_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index file has the time of all but its first record in whole seconds."""
    with lakelog.open(tmp_path, **SETTINGS) as store:
        message = _EncodedInPython("t", b"", keys="k", queue_id=0)
        first = store.put(message).store_timestamp_ms
        for after_ms in (3_600_700, 7_200_000, 7_200_999):
            now_ns = (first + after_ms) * 1_000_000
            monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
            last = store.put(message)
            assert last.store_timestamp_ms == first + after_ms
            assert store.wait_dispatched()
            for since, until, count in ((0, 0, 1), (-1, 1, 1), (-2, -1, 0), (1, 2, 0)):
                window = (first + after_ms + since, first + after_ms + until)
                found = natively(store)("t", "k", *window, 64)
                assert found is not None
                assert [each.physical_offset for each in found] == [last.physical_offset] * count


def test_a_longer_chain_than_is_walked_at_once(tmp_path: Path) -> None:
    more = {"hash-index": {"slots": 2, "entries": 10_000}}
    with lakelog.open(tmp_path / "s", **{**SETTINGS, **more}) as store:
        for count, is_walked in ((1000, True), (9000, False)):
            store.put_batch([Message("t", b"", keys=f"k{at}") for at in range(count)])
            assert store.wait_dispatched()
            assert (natively(store)("t", "k0", *FOUND) is not None) == is_walked
            check(store, "t", "k0", *FOUND)


BESIDE = """
import json, sys
import lakelog
path, mode, most = sys.argv[1:]
with lakelog.open(path, mode=mode, segment_size_bytes=1 << 14, flush="none") as store:
    for at in range(int(most)):
        assert store.wait_dispatched(timeout_ms=60_000)
        found = [each.physical_offset for each in store.query("t", "k")]
        assert found == sorted(found, reverse=True) and len(set(found)) == len(found) >= 10
        assert all("k" in each.keys for each in store.query("t", "k"))
    print(json.dumps([each.physical_offset for each in store.query("t", "unique-7b")]))
"""


@pytest.mark.parametrize("mode", ["read", "write"])
def test_beside_one_that_appends(mode: str, tmp_path: Path) -> None:
    """Queries of another process, and of threads of this one, during puts."""
    with filled(tmp_path / "s") as store:
        place = store.put(Message("t", b"", properties={"UNIQ_KEY": "unique-7b"})).physical_offset
        command = [sys.executable, "-c", BESIDE, str(store.path), mode, "10"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            worker = Thread(target=append_all, args=(store, "w"))
            worker.start()
            append_all(store, "m")
            worker.join()
            printed, _ = other.communicate(timeout=120)
        assert other.returncode == 0
        assert json.loads(printed) == [place]
        for key in ("w0", "m0", "m199"):
            check(store, "t", key, *FOUND)  # maps the segment, if it was not
            assert len(natively(store)("t", key, *FOUND) or ()) == 1


def append_all(store: Store, name: str) -> None:
    """Put messages, and check that each is found once it is dispatched."""
    for at in range(200):
        key = f"{name}{at}"
        put = store.put(Message("t", bytes(100), keys=[key, "k"]))
        assert store.wait_dispatched(put.end_offset)
        assert [each.physical_offset for each in store.query("t", key)] == [put.physical_offset]
