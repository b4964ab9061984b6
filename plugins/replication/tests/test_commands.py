"""``lakelog replication``, and the requests that it sends to brokers."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog_daemon.replication_status import (
    STATUS_FILE,
    MasterStatus,
    ReplicaStatus,
    SlaveStatus,
    read_status,
    write_status,
)
from lakelog_replication.remoting import BrokerRefused, broker_config, most_bytes, runtime_info
from lakelog_replication.replica.receiver import consumer_offsets
from lakelog_testing import FakeReplicatedLog
from plugins.replication.tests.brokers import Asked, answering, response, runtime
from plugins.replication.tests.masters import eventually, serving, slave
from tests.support.commands import invoke


def run(*arguments: object) -> Result:
    return invoke("replication", *arguments)


def test_status_lists_the_slaves(tmp_path: Path) -> None:
    log = FakeReplicatedLog(tmp_path / "commitlog")
    log.append(1000)
    more = {"in_sync_replicas": 2, "learners": ("127.0.0.2",), "allow": ("127.0.0.0/30",)}
    with (
        serving(log, tmp_path, **more) as master,
        slave(master) as first,
        slave(master, "127.0.0.2") as learner,
        slave(master, "127.0.0.9") as stranger,
    ):
        assert stranger.is_closed()
        first.report(1)
        first.bytes_up_to(1000)
        learner.report(600)
        learner.bytes_up_to(1000, report=False)

        def rows() -> list[dict[str, Any]]:
            lines = run("status", tmp_path, "--json").stdout.splitlines()
            return [json.loads(each) for each in lines]

        eventually(
            lambda: (
                [(each["slave"], each["acked"], each["learner"]) for each in rows()]
                == [("127.0.0.1", 1000, False), ("127.0.0.2", 600, True)]
            )
        )
        assert [each["behind_bytes"] for each in rows()] == [0, 400]
        said = run("status", tmp_path).stderr
        assert f"process {os.getpid()} sends, at 127.0.0.1:{master.port}" in said
        assert "a put waits for 2 copies, this store included" in said
        assert "refused 127.0.0.9: its address is not in rocketmq-ha.allow" in said


def test_a_status_that_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    done = run("status", tmp_path)
    assert done.exit_code == 0
    assert "no process has replicated this store" in done.stderr
    assert run("status", tmp_path / "none").exception is not None
    file = tmp_path / "lakelog" / STATUS_FILE
    file.parent.mkdir()
    no_end = {"version": 1, "role": "master", "pid": 1, "slaves": [{}]}
    for content in ("", "[]", "{}", '{"version": 2, "slaves": []}', "\x00", json.dumps(no_end)):
        file.write_text(content)
        with pytest.raises(StoreError, match=f"{STATUS_FILE}: the replication status cannot be"):
            read_status(RealFileSystem(), tmp_path)
        done = run("status", tmp_path)
        assert (done.exit_code, STATUS_FILE in done.stderr) == (3, True)


SLAVE = SlaveStatus(address="127.0.0.2", sent=70, acked=60, learner=True, since_ms=5)
STATUSES = (
    MasterStatus(
        pid=7,
        listening="*:10912",
        time_ms=9,
        end=80,
        copied=60,
        in_sync_replicas=2,
        slaves=(SLAVE,),
        refused={"port": "in use"},
    ),
    ReplicaStatus(
        pid=8,
        source="10.0.0.1:10912",
        time_ms=9,
        heard_ms=8,
        is_connected=True,
        master_end=80,
        says="receives",
    ),
)


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_read_as_it_was_written(
    tmp_path: Path, status: MasterStatus | ReplicaStatus
) -> None:
    file = tmp_path / "lakelog" / STATUS_FILE
    file.parent.mkdir()
    write_status(RealFileSystem(), tmp_path, status)
    assert read_status(RealFileSystem(), tmp_path) == status
    content = json.loads(file.read_text())
    for name in content:
        rest = {key: value for key, value in content.items() if key != name}
        for damaged in ({**content, name: [1]}, rest) if name != "refused" else ({name: [1]},):
            file.write_text(json.dumps(damaged))
            with pytest.raises(StoreError, match="the replication status cannot be read"):
                read_status(RealFileSystem(), tmp_path)


# --- adopt ---


@contextmanager
def broker(answer: bytes) -> Iterator[tuple[int, Asked]]:
    """A broker with this answer: its port, and the requests that it got."""
    asked: Asked = []
    with answering(answer, asked) as found:
        yield found.port, asked


def answered(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text), len(text)) + text


def test_adopt_sends_one_request() -> None:
    with broker(answered({"code": 0})) as (port, asked):
        done = run("adopt", f"127.0.0.1:{port}", "--master", "10.0.0.1:10912")
        assert done.exit_code == 0, done.exception
    (request,) = asked
    assert request["code"] == 906
    assert request["extFields"] == {
        "masterHaAddress": "10.0.0.1:10912",
        "masterAddress": "10.0.0.1:10911",
        "masterFlushOffset": "0",
    }


def test_a_broker_that_answers_otherwise_is_an_error() -> None:
    for answer, said in (
        (b"", "does not answer"),
        (b"\x00\x00", "does not answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another protocol"),
        (response()[:-3], "ended inside"),
        (struct.pack(">II", 1 << 31, 4), "another protocol"),
        (struct.pack(">iI", -1, 4), "another protocol"),
        (struct.pack(">II", 8, 100) + b"abcd", "another protocol"),
        (struct.pack(">II", 8, 1 << 24 | 4) + b"abcd", "another protocol"),
        (struct.pack(">II", 8, 4) + b"abcd", "damaged header"),
        (answered([]), "damaged header"),
        (response(code=1, remark="no permission"), "refuses request 906: 1 no permission"),
    ):
        with broker(answer) as (port, _):
            done = run("adopt", f"127.0.0.1:{port}", "--master", "10.0.0.1:10912")
        assert isinstance(done.exception, SystemExit | BrokerRefused), answer
        words = f"{done.stderr} {done.exception}"
        assert f"127.0.0.1:{port}" in words
        assert said in words


def test_an_address_that_is_none_is_wrong_usage() -> None:
    for text in ("", "host", "host:", ":1", "host:0", "host:65536", "host:x"):
        done = run("adopt", text, "--master", "10.0.0.1:10912")
        assert done.exit_code == 2
        assert "give HOST:PORT" in done.stderr


# --- what brokers say ---


def test_what_is_not_certainly_synced_does_not_count() -> None:
    amounts = {"0 B": 0, "1023 B": 1023, "1.0 KiB": 1076, "54,5 KiB": 55860, "3.2 MiB": 3407872}
    assert {text: most_bytes(text) for text in amounts} == amounts
    assert [most_bytes(text) for text in ("12", "", "1.0 XiB")] == [None] * 3
    with answering(runtime(remainHowManyDataToFlush="2.0 KiB")) as found:
        info = runtime_info(found)
    assert (info.boot_ms, info.minimum, info.end) == (5, 100, 9000)
    assert info.flushed == 9000 - 2100
    with answering(runtime(remainHowManyDataToFlush="some")) as found:
        assert runtime_info(found).flushed == 0
    with answering(runtime(commitLogMaxOffset="x")) as found, pytest.raises(BrokerRefused):
        runtime_info(found)


def test_settings_and_consumer_offsets() -> None:
    with answering(response(b"#no\nmappedFileSizeCommitLog=1048576\na = b\n\n")) as found:
        assert broker_config(found) == {"mappedFileSizeCommitLog": "1048576", "a": "b"}
    with answering(response(b'{"offsetTable":{"t@g":{0:5,"1":7}}}')) as found:
        assert consumer_offsets(found) == {"t@g": {0: 5, 1: 7}}
    with answering(response(b"<html>")) as found, pytest.raises(BrokerRefused):
        consumer_offsets(found)
