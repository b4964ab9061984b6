"""``lakelog replicate`` and ``lakelog promote``."""

from __future__ import annotations

from pathlib import Path

import lakelog
from lakelog_replication import commands
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.brokers import answering, brokering, response, runtime
from plugins.replication.tests.replica.copies import SEGMENT, log_of, make_log, replica, until
from tests.support import forked
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


def test_wrong_use_is_said(tmp_path: Path) -> None:
    refused = invoke("replicate", tmp_path / "copy", "--from", "here", "--table", "a.b")
    assert (refused.exit_code, "--to" in refused.stderr) == (2, True), refused.stderr
    for more, code, said in (
        ((), 2, "--from HOST:PORT"),
        (("--from", "127.0.0.1:1"), 3, "cannot be asked where to begin"),
    ):  # in a process, which keeps the handlers of the log
        words, out = ["replicate", str(tmp_path / "copy"), *more], tmp_path / "out"
        with forked.start("tests.support.program", words, errors=out) as process:
            assert process.wait(60) == code
        assert said in out.read_text()


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


def test_a_copy_whose_making_was_killed_asks_for_the_segment_size_again(tmp_path: Path) -> None:
    segment = tmp_path / "commitlog" / "00000000000000000000"
    with answering(response(b"mappedFileSizeCommitLog=1048576\n")) as broker:
        for leave in (tmp_path.touch, segment.parent.mkdir, segment.touch):
            leave()
            given = commands._with_segment_size(tmp_path, str(broker), {})
            assert given == {"segment_size_bytes": 1048576}
    segment.write_bytes(bytes(4096))
    assert commands._with_segment_size(tmp_path, "127.0.0.1:1", {}) == {}
