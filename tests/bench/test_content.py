"""The bytes for every peer are records as the real store writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.content import TOPIC, run_of_records
from tests.support.rows import by_kind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle


@pytest.mark.slow
def test_the_real_store_reads_the_records(oracle: Oracle, tmp_path: Path) -> None:
    log = tmp_path / "commitlog" / "00000000000000000000"
    log.parent.mkdir()
    log.write_bytes(run_of_records(40, b"body").ljust(65536, b"\0"))
    rows = by_kind(oracle.dump(tmp_path, {"mappedFileSizeCommitLog": "65536"}))
    assert [row["keys"] for row in rows["msg"] if row["queueId"] == 1][:2] == ["k1", "k5"]
    assert len(rows["rec"]) == len(rows["query"]) == 40
    assert {row["topic"] for row in rows["msg"]} == {TOPIC}
