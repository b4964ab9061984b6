"""Directories of lakelog that was killed under load: the real store recovers the same of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.killing import killed
from tests.support.rows import by_kind, difference
from tests.support.twostores import JAVA, SETTINGS, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

PAIRS: Final = [
    (writer, flush)
    for writer in ("file", "mmap", "staged", "direct")
    for flush in ("timed", "group-commit")
]
SAMPLE: Final = [("file", "timed"), ("staged", "group-commit")]
IN_MEMORY: Final = {("staged", "timed"), ("direct", "timed")}
"""Here puts are acknowledged while their bytes are in buffers of the process."""


def kill_a_store(path: Path, writer: str, flush: str, seed: int, seconds: float) -> set[int]:
    """Leave a store whose owner was killed; offsets of what it had acknowledged."""
    settings = json.dumps({**SETTINGS, "writer": writer, "flush": flush})
    command = [sys.executable, "-m", "tests.support.putting", str(path), settings, str(seed)]
    return {int(line) for line in killed(command, seconds)}


def check_round(
    oracle: Oracle, path: Path, writer: str, flush: str, *, seed: int, seconds: float
) -> None:
    acknowledged = kill_a_store(path, writer, flush, seed, seconds)
    assert (path / "abort").exists()
    copy = recovered(path)
    found = ours(copy)
    compare(path, found, oracle.dump(path, JAVA))
    if (writer, flush) not in IN_MEMORY:
        assert acknowledged <= {row["physOffset"] for row in by_kind(found)["rec"]}
    if not by_kind(found)["rec"]:
        return  # killed before anything left its buffers; the real store makes other empty files
    # A recovery of lakelog leaves a clean stop: the real store takes all of it as it is.
    assert not (copy / "abort").exists()
    before = derived(copy)
    assert any(name.startswith("index") for name in before) == bool(by_kind(found)["query"])
    assert difference(found, oracle.dump(copy, JAVA, in_place=True)) == ""
    assert derived(copy) == before


@pytest.mark.parametrize(("writer", "flush"), SAMPLE)
def test_the_real_store_reads_the_same_of_a_killed_store(
    writer: str, flush: str, oracle: Oracle, tmp_path: Path
) -> None:
    check_round(oracle, tmp_path / "store", writer, flush, seed=1, seconds=0.3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_killed_at_many_instants(writer: str, flush: str, oracle: Oracle, tmp_path: Path) -> None:
    """The longest runs are longer than the margin of a checkpoint, three seconds."""
    for seed, seconds in enumerate((0.01, 0.1, 0.2, 0.5, 1, 2, 5, 9)):
        check_round(oracle, tmp_path / f"{seed}", writer, flush, seed=seed, seconds=seconds)
