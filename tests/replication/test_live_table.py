"""A live replica lands in a table only messages that the master cannot lose."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import lakelog
from lakelog_testing.samples import copy_store
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.replica.copies import SEGMENT, make_log, until
from tests.replication.tables import Table, end_of, offsets, replicating
from tests.support.commands import invoke


@pytest.mark.timeout(300)
def test_a_table_never_has_what_the_master_took_back(tmp_path: Path) -> None:
    """Unless it was taken for durable: then an error says how to replace the rows by hand."""
    begun = make_log(tmp_path / "master", 40)
    shared = make_log(tmp_path / "master", 20, first=40)
    copy_store(tmp_path / "master", tmp_path / "former")
    taken_back = make_log(tmp_path / "former", 30, first=60)
    copy_store(tmp_path / "master", tmp_path / "last")
    former = make_log(tmp_path / "master", 80, first=9000)
    right = make_log(tmp_path / "last", 100, first=20_000)
    copy, lake, cut = tmp_path / "copy", Table(tmp_path / "lake"), len(shared)
    with ScriptedMaster(begun, segment_bytes=SEGMENT) as master:
        words = ("--from", master.address, *lake.words, "--set", f"segment_size_bytes={SEGMENT}")
        run = partial(replicating, copy, *words)
        with run("--vouch", "received"):
            lake.await_rows(40)
            master.append(shared[len(begun) :])
            lake.await_rows(60)
        master.append(taken_back[cut:])
        with run("--set", "rocketmq-ha.vouch_age_ms=3600000"):
            until(lambda: end_of(copy) == master.end)
            master.set_back(cut, former[cut:])
            until(lambda: end_of(copy) == len(former))
            assert len(lake.offsets()) == 60
        with run("--vouch", "received", code=4):
            lake.await_rows(140)
            assert lake.offsets() == offsets(tmp_path / "master") == offsets(copy)
            master.set_back(cut, right[cut:])
            until(lambda: "has taken back" in (tmp_path / "out").read_text())
        said = (tmp_path / "out").read_text()
        assert f"rows with physical offsets from {cut} to {len(former)}" in said
        assert len(lake.offsets()) == 140
        lakelog.cut_replica(copy, cut)
        rewound = invoke("lake", "rewind", copy, "--to", lake.to, "--yes", *lake.named)
        assert rewound.exit_code == 0, rewound.output
        assert len(lake.offsets()) == 60
        with run("--vouch", "received"):
            lake.await_rows(160)
    assert lake.offsets() == offsets(tmp_path / "last") == offsets(copy)
