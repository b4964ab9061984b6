"""Topics that cannot name a folder stop no dispatch, and create no folder; topics of batches."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from core.tests.format.handmade import record, run
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import MAGIC_V2
from lakelog.format.record_batch import RecordBatch
from lakelog_queues.dispatching.grouping import names_folder
from lakelog_queues.dispatching.making import batch_topics
from plugins.queues.tests.consumequeue.support import contents, keep_log, queues
from plugins.queues.tests.groups.support import fill, open_store

NO_FOLDERS = ["a/b", "/a", "a/", "..", ".", "", "../../x", "a\x00b", "a/0"]
FOLDERS = ["a.b", "...", " ", "a\\b", "-", "\u00fc", "%LMQ%x", "a\tb", "t" * 127]


def test_what_names_a_folder(tmp_path: Path) -> None:
    for topic in (*FOLDERS, "t" * 255):
        assert names_folder(topic)
        (tmp_path / topic).mkdir()
        assert (tmp_path / topic) in tmp_path.iterdir()
    for topic in (*NO_FOLDERS, "t" * 256, "\u00fc" * 128):
        assert not names_folder(topic)


def test_records_of_such_topics_stand_in_no_queue_and_the_others_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "deep" / "store"
    store.mkdir(parents=True)
    log = b""
    for topic in [*NO_FOLDERS, *FOLDERS, *NO_FOLDERS, *FOLDERS]:
        log += record(topic, b"", b"x", log.count(b"x"), len(log))
    batch = _batch(log)
    made = queues(store)
    made.resume(0, 0)
    keep_log(store, batch)
    made.dispatch(batch)
    assert {topic for topic, _ in made.queues()} == set(FOLDERS)
    assert all(len(offsets) == 2 for _, (_, offsets, *_rest) in contents(made).values())
    made.close()
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in store.parent.iterdir()} == {"store"}
    assert {path.name for path in (store / "consumequeue").iterdir()} == set(FOLDERS)
    assert "topic '../../x' cannot name a folder" in caplog.text
    again = queues(store)
    assert again.resume(0, batch.end_offset) == batch.end_offset
    assert contents(again) == contents(made)
    again.close()


def test_a_topic_that_is_longer_than_any_name(tmp_path: Path) -> None:
    made = queues(tmp_path)
    made.resume(0, 0)
    long = _of_version_2("t" * 300)
    made.dispatch(_batch(long))
    made.dispatch(run(record("t", b"", b"x", 0, len(long)), start=len(long)))
    assert made.queues() == [("t", 0)]
    made.close()


def test_light_queues_are_names_too(tmp_path: Path) -> None:
    names = ["%LMQ%a", "%LMQ%../../x", "%LMQ%\x00", "%LMQ%" + "t" * 251, "%LMQ%b"]
    properties = (
        f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02INNER_MULTI_QUEUE_OFFSET\x010,0,0,0,0\x02"
    )
    made = queues(tmp_path, light_queues=True)
    made.resume(0, 0)
    made.dispatch(run(record("t", properties.encode(), b"x")))
    assert sorted(made.queues()) == [("%LMQ%a", 0), ("%LMQ%b", 0), ("t", 0)]
    made.close()


def _batch(log: bytes) -> RecordBatch:
    """Records as a scan returns them, whatever their topics are."""
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    return RecordBatch(memoryview(log), 0, np.array(starts, np.int64))


def _of_version_2(topic: str) -> bytes:
    """A record with a length of the topic in two bytes."""
    raw = record("", b"", b"x")
    raw = raw[:4] + struct.pack(">I", MAGIC_V2 & 0xFFFFFFFF) + raw[8:-3]
    raw += len(topic).to_bytes(2, "big") + topic.encode() + bytes(2)
    return len(raw).to_bytes(4, "big") + raw[4:]


# --- which topics have queues of batches ---


GOOD = '{"topicConfigTable":{"b":{"attributes":{"queue.type":"BatchCQ"}},"s":{"attributes":{}}}}'


@pytest.mark.parametrize(
    ("text", "backup", "expected"),
    [
        (GOOD, None, {"b"}),
        (None, None, set()),
        (GOOD[:40], GOOD, {"b"}),
        ("", GOOD, {"b"}),
        (None, GOOD, {"b"}),
        (GOOD[:40], None, set()),
        ("[]", None, set()),
        ('{"topicConfigTable":null}', None, set()),
        ('{topicConfigTable:{b:{0:1, attributes : {"queue.type":"BatchCQ"}}}}', None, {"b"}),
        ('{"topicConfigTable":{"a{b:c":{"attributes":{"queue.type":"BatchCQ"}}}}', None, {"a{b:c"}),
        ('{"topicConfigTable":{"s":{"attributes":{"queue.type":"SimpleCQ"}}}}', None, set()),
    ],
)
def test_batch_topics(
    tmp_path: Path, text: str | None, backup: str | None, expected: set[str]
) -> None:
    (tmp_path / "config").mkdir()
    for name, content in (("topics.json", text), ("topics.json.bak", backup)):
        if content is not None:
            (tmp_path / "config" / name).write_text(content)
    assert batch_topics(RealFileSystem(), tmp_path) == expected


@pytest.mark.parametrize(
    "name", ["12345678901234567890", "00000000000000004940", "09000000000000000000"]
)
def test_a_stray_file_is_no_proof_of_lost_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with open_store(tmp_path) as store:
        fill(store, 10, queues=1)
    (tmp_path / "consumequeue" / "t" / "0" / name).write_bytes(b"x" * 1000)
    with open_store(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.missing == ()
        assert store.queue_bounds("t", 0) == (0, 10)
        assert store.put(Message("t", b"10", queue_id=0)).queue_offset == 10
    assert f"{name} has a wrong length (1000 bytes) or name" in caplog.text
    assert [each.name for each in (tmp_path / "lakelog" / "quarantine").iterdir()] == [
        f"consumequeue-0-{name}-t"
    ]


@pytest.mark.parametrize("topic", ["o" * 255, "\u8ba2" * 74, "\u00fc" * 127])
def test_a_damaged_file_of_a_long_topic_is_set_aside(tmp_path: Path, topic: str) -> None:
    """The name there is cut by its bytes, not by its characters."""
    for damaged in (1, 2):
        with open_store(tmp_path) as store:
            fill(store, 5, topic, queues=1)
            fill(store, 1, "fine", queues=1)
        (file,) = (tmp_path / "consumequeue" / topic / "0").iterdir()
        os.truncate(file, 97)
        with open_store(tmp_path) as store:
            assert store.queue_bounds(topic, 0) == (0, 5 * damaged)
        aside = [each.name for each in (tmp_path / "lakelog" / "quarantine").iterdir()]
        assert len(aside) == damaged
        assert all(len(os.fsencode(each)) <= 255 for each in aside)
