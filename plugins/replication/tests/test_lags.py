"""``lakelog top``, ``stats`` and ``replication status`` show how far copies are behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, write_pin
from lakelog_cli.statelines import CopyLags, lag_rows
from lakelog_daemon.replication_status import STATUS_FILE, ReplicaStatus, write_status
from lakelog_testing import ScriptedSlave
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.brokers import brokering, runtime
from plugins.replication.tests.masterstores import message, open_master
from plugins.replication.tests.replica.copies import SEGMENT, make_log, replica, until
from plugins.replication.tests.replica.test_durable import reached, replicating
from plugins.replication.tests.test_in_a_store import port_of
from tests.support.commands import invoke

LONG_MS = 3_600_000


def shown(*words: object) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def views(path: Path) -> list[dict[str, Any]]:
    """What ``top`` and ``stats`` say of the replication."""
    found = [
        json.loads(shown("top", path, "--json"))["replication"],
        json.loads(shown("stats", path, "--json"))["replication"],
    ]
    assert all(isinstance(each, dict) for each in found)
    return found


def here(path: Path) -> dict[str, Any]:
    with lakelog.open(path, mode="read") as reader:
        view = CopyLags(reader).view()
    assert view is not None
    return view


def test_a_replica_shows_what_it_lacks_and_what_has_not_landed(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 100)
    copy = tmp_path / "copy"
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        replica(copy, master.address, vouch="age", vouch_age_ms=LONG_MS) as store,
    ):
        until(lambda: store.max_offset == len(log))
        offsets = [each.physical_offset for each in store.scan()]
        write_pin(RealFileSystem(), copy, Pin("lake", offsets[40], 1, "iceberg:/lake"))
        until(lambda: here(copy)["lag"] == {"bytes": 0, "messages": 0, "seconds": 0.0})
        for view in views(copy):
            assert (view["role"], view["is_running"], view["is_connected"]) == ("slave", True, True)
            assert view["source"] == master.address
            assert view["says"] == f"receives from {master.address}"
            not_durable, landed = view["not_durable"], view["landed"]["lake"]
            assert (not_durable["bytes"], not_durable["messages"]) == (len(log), 100)
            assert (landed["bytes"], landed["messages"]) == (len(log) - offsets[40], 60)
            assert landed["seconds"] > 0
        lines = shown("stats", copy)
        assert f"replication: behind {master.address}: 0 B, 0 messages, 0.0 s" in lines
        assert "replication: not landed: lake: " in lines
        assert "not landed: lake" in shown("top", copy, "--once")
        rows = shown("replication", "status", copy, "--json").splitlines()
        assert [json.loads(each)["messages"] for each in rows] == [0, 100, 60]


def test_a_replica_with_a_broker_shows_what_the_master_has(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 100)
    copy = tmp_path / "copy"
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering(
            {28: runtime(commitLogMinOffset=0, commitLogMaxOffset=len(log) + 40_000)}
        ) as broker,
        replica(copy, master.address, broker=broker) as store,
    ):
        until(lambda: store.max_offset == len(log))
        until(lambda: here(copy)["lag"]["bytes"] == 40_000)
        lag = here(copy)["lag"]
        assert abs(lag["messages"] - 40_000 * 100 / len(log)) <= 1
        assert lag["seconds"] is not None


def test_seconds_count_from_the_first_message_that_is_lacking(tmp_path: Path) -> None:
    make_log(tmp_path / "master", 50)
    with lakelog.open(tmp_path / "master", mode="read") as store:
        (first, *_), last = list(store.scan())[20:], store.max_offset
        lag = CopyLags(store).between(first.physical_offset, last, first.store_timestamp_ms + 7500)
    assert lag == {"bytes": last - first.physical_offset, "messages": 30, "seconds": 7.5}


def test_a_lag_that_is_too_long_to_count_is_estimated(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "s", segment_size_bytes=1 << 25) as store:
        for _ in range(200):
            store.put_batch([message(bytes(20_000))] * 10)
        lag = CopyLags(store).between(0, store.max_offset, 0)
    assert abs(lag["messages"] - 2000) < 20


def test_nothing_that_is_lost_is_shown_as_a_replica_that_runs(tmp_path: Path) -> None:
    make_log(tmp_path / "copy", 10)
    gone = subprocess.Popen(["true"])
    gone.wait()
    status = ReplicaStatus(
        pid=gone.pid,
        source="10.0.0.1:10912",
        time_ms=1,
        heard_ms=1,
        is_connected=True,
        master_end=0,
        says="receives from 10.0.0.1:10912",
    )
    write_status(RealFileSystem(), tmp_path / "copy", status)
    view = here(tmp_path / "copy")
    assert (view["is_running"], view["is_connected"]) == (False, False)
    assert view["lag"]["seconds"] > 0


@pytest.mark.parametrize("content", [{"role": "slave"}, {"role": "master", "slaves": [{}]}])
def test_a_damaged_status_is_said_by_its_own_command_and_shown_by_no_other(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    make_log(tmp_path / "s", 10)
    file = tmp_path / "s" / "lakelog" / STATUS_FILE
    file.write_text(json.dumps({"version": 1, "pid": os.getpid(), **content}))
    assert json.loads(shown("stats", tmp_path / "s", "--json"))["replication"] is None
    assert "replication: " not in shown("stats", tmp_path / "s")
    done = invoke("replication", "status", tmp_path / "s")
    assert (done.exit_code, STATUS_FILE in done.stderr) == (3, True)


def test_a_master_shows_the_lag_of_each_slave(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with (
        open_master(path, send="written", silence_timeout_ms=LONG_MS) as store,
        ScriptedSlave(port_of(path, os.getpid())) as slave,
    ):
        ends = [store.put(message()).end_offset for _ in range(10)]
        slave.report(1)
        slave.bytes_up_to(ends[-1], report=False)
        slave.report(ends[5])
        until(lambda: lag_of_slave(path).get("messages") == 4)
        for view in views(path):
            (row,) = view["slaves"]
            assert (row["address"], row["learner"], row["unsent_bytes"]) == ("127.0.0.1", False, 0)
            assert row["lag"]["bytes"] == ends[-1] - ends[5]
            assert row["lag"]["messages"] == 4
            assert [name for name, _, _ in lag_rows(view)] == ["slave 127.0.0.1"]
        (line,) = shown("replication", "status", path, "--json").splitlines()
        assert json.loads(line)["behind_messages"] == 4
        more = store.put(message()).end_offset  # while the slave stands still
        until(lambda: lag_of_slave(path)["bytes"] == more - ends[5])
        assert lag_of_slave(path)["messages"] == 5


def test_a_replica_that_is_served_is_well(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with (
        ScriptedMaster(make_log(tmp_path / "master", 10), segment_bytes=SEGMENT) as master,
        replicating(copy, master),
    ):
        until(lambda: reached(copy) == master.end)
        until((copy / "lakelog" / "serve.json").exists)
        view = json.loads(shown("top", copy, "--json"))
        assert (view["health"], view["problems"]) == ("ok", [])


def lag_of_slave(path: Path) -> dict[str, Any]:
    slaves = here(path)["slaves"]
    return (slaves[0]["lag"] or {}) if slaves else {}
