"""``lakelog replicate`` and ``lakelog promote``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lakelog
from lakelog_replication.replica import commands
from lakelog_testing.scriptedmaster import ScriptedMaster
from plugins.replication.tests.brokers import brokering
from plugins.replication.tests.replica.copies import SEGMENT, log_of, make_log, replica, until
from plugins.replication.tests.test_remoting import answering, response, runtime
from tests.support.commands import invoke


def test_a_copy_is_cut_and_promoted_by_commands(tmp_path: Path) -> None:
    log, copy = make_log(tmp_path / "master", 30), tmp_path / "copy"
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        replica(copy, master.address) as store,
    ):
        until(lambda: store.max_offset == master.end)
        places = [each.physical_offset for each in store.scan()]
    done = invoke("replicate", copy, "--cut-to", places[20])
    assert done.exit_code == 0, done.stderr
    with lakelog.open(copy, mode="read") as reader:
        assert [each.physical_offset for each in reader.scan()] == places[:20]
        assert reader.flushed_offset == places[20]
    done = invoke("promote", copy)
    assert done.exit_code == 0, done.stderr
    with lakelog.open(copy) as store:
        assert store.put(lakelog.Message("orders", b"mine")).physical_offset == places[20]
    done = invoke("promote", copy)
    assert done.exit_code == 3
    assert "it is no replica" in done.stderr


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command that writes a log, whose handlers a process keeps."""
    command = [sys.executable, "-m", "lakelog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_wrong_use_is_said(tmp_path: Path) -> None:
    done = run("replicate", tmp_path / "copy")
    assert (done.returncode, "--from HOST:PORT" in done.stderr) == (2, True), done.stderr
    refused = invoke("replicate", tmp_path / "copy", "--from", "here", "--table", "a.b")
    assert (refused.exit_code, "--to" in refused.stderr) == (2, True), refused.stderr
    done = run("replicate", tmp_path / "copy", "--from", "127.0.0.1:1")
    assert (done.returncode, "cannot be asked where to begin" in done.stderr) == (3, True)


def test_a_new_copy_begins_where_the_broker_says(tmp_path: Path) -> None:
    log = make_log(tmp_path / "master", 240)
    with (
        ScriptedMaster(log, segment_bytes=SEGMENT) as master,
        brokering({28: runtime(commitLogMinOffset=SEGMENT, commitLogMaxOffset=len(log))}) as broker,
    ):
        master.delete_before(SEGMENT)
        with replica(tmp_path / "copy", master.address, broker=broker) as store:
            until(lambda: store.max_offset == master.end)
            assert store.min_offset == SEGMENT
    assert log_of(tmp_path / "copy", len(log)) == log[SEGMENT:]


@pytest.mark.parametrize("left", ["nothing", "a folder", "an empty segment"])
def test_a_copy_whose_making_was_killed_asks_for_the_segment_size_again(
    tmp_path: Path, left: str
) -> None:
    if left != "nothing":
        (tmp_path / "commitlog").mkdir()
    if left == "an empty segment":
        (tmp_path / "commitlog" / "00000000000000000000").touch()
    with answering(response(b"mappedFileSizeCommitLog=1048576\n")) as broker:
        given = commands._with_segment_size(tmp_path, str(broker), {})
    assert given == {"segment_size_bytes": 1048576}


def test_a_copy_with_a_segment_keeps_its_size(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "00000000000000000000").write_bytes(bytes(4096))
    assert commands._with_segment_size(tmp_path, "127.0.0.1:1", {}) == {}
