"""Every installed peer accepts messages in each measured way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench import child, peers
from tests.bench.load import Load
from tests.bench.model import LAKELOG, CannotRunError
from tests.bench.peers import java

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle

LOADS = {
    "one thread": Load(body_bytes=128, count=40),
    "threads": Load(body_bytes=128, count=40, threads=4),
    "batches": Load(body_bytes=128, count=40, batch_size=8),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("name", sorted({*peers.NAMES, *peers.BATCH_NAMES}))
def test_a_peer_runs(name: str, load: Load, tmp_path: Path) -> None:
    try:
        peer = peers.module(name).Peer()
    except CannotRunError as reason:
        if name == LAKELOG:
            raise
        pytest.skip(str(reason))
    assert child.run(peer, load, tmp_path)["rows_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_the_real_store_runs(load: Load, oracle: Oracle, tmp_path: Path) -> None:
    assert java.run(load, tmp_path)["rows_s"] > 0
