"""RocketMQ's JSON library reads the offsets that lakelog wrote, and the reverse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_rocketmq.config.consumeroffsets import load_offsets

if TYPE_CHECKING:
    from tests.oracle.java import Oracle


def test_offsets_go_both_ways(oracle: Oracle, tmp_path: Path) -> None:
    files = RealFileSystem()
    table = OffsetTable(files, tmp_path)
    table.commit("g", "Müll", {0: 1, 10: (1 << 62) + 1, 2: 3})
    table.commit("h", "%RETRY%g", {0: 0})
    rows = oracle.run("ConsumerOffsets", tmp_path, ["--write", "true"])
    assert [(row["name"], row["queue"], row["offset"], row["counter"]) for row in rows] == [
        ("%RETRY%g@h", 0, 0, 2),
        ("Müll@g", 0, 1, 2),
        ("Müll@g", 2, 3, 2),
        ("Müll@g", 10, (1 << 62) + 1, 2),
    ]
    assert "{0:" in (tmp_path / "config" / "consumerOffset.json").read_text("utf-8")
    loaded = load_offsets(files, tmp_path)
    assert loaded.value == {"Müll@g": {0: 1, 10: (1 << 62) + 1, 2: 3}, "%RETRY%g@h": {0: 0}}
    assert loaded.content["dataVersion"]["counter"] == 2
