"""Every store of the durability suites runs in each measured way; no time is checked."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench import durable
from tests.bench.durable import child, opening, stalling, starting
from tests.bench.durable.gathering import Gathering
from tests.bench.durable.work import Work
from tests.bench.kafka import contender as kafka
from tests.bench.model import CannotRunError
from tests.bench.suites import SUITES
from tests.bench.suites.durable import _run_java

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

DRIVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lakelog": ("lakelog", {"flush": "group-commit", "segment_size_bytes": "1MiB"}),
    "raw": ("raw", {}),
    "raw direct": ("raw", {"direct": True, "write_bytes": 1 << 20, "sync_bytes": 2 << 20}),
    "lmdb": ("lmdb", {}),
    "lmdb grouped": ("lmdb", {"grouped": True}),
    "rocksdb": ("rocksdb", {}),
    "sqlite": ("sqlite", {"journal": "WAL"}),
    "sqlite rollback": ("sqlite", {"journal": "DELETE"}),
}
WAYS = {"threads": Work(0.03, threads=3), "batches": Work(0.03, threads=2, batch_size=8)}
TINY_BYTES = 1 << 20


@pytest.mark.sample(6)
@pytest.mark.parametrize("work", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", DRIVERS)
def test_a_store_runs(name: str, work: Work, tmp_path: Path) -> None:
    driver, options = DRIVERS[name]
    try:
        peer = durable.module(driver).Peer()
    except CannotRunError as reason:
        if driver == "lakelog":
            raise
        pytest.skip(str(reason))
    sample = child.run(peer, _with(work, options), tmp_path)
    assert sample["rows_s"] > 0
    assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["max_us"]


def _with(work: Work, options: dict[str, Any]) -> Work:
    return Work(work.seconds, work.threads, batch_size=work.batch_size, options=options)


@pytest.mark.parametrize(
    "work", [Work(0.03, in_flight=8), Work(0.03, batch_size=8, columns=True)], ids=str
)
def test_what_only_lakelog_does(work: Work, tmp_path: Path) -> None:
    _, options = DRIVERS["lakelog"]
    work = Work(
        work.seconds,
        in_flight=work.in_flight,
        batch_size=work.batch_size,
        columns=work.columns,
        options=options,
    )
    assert child.run(durable.module("lakelog").Peer(), work, tmp_path)["rows_s"] > 0


def test_the_figures_come_out_of_a_process_of_its_own(tmp_path: Path) -> None:
    assert child.spawn("raw", Work(0.03), tmp_path)["rows_s"] > 0
    with pytest.raises(CannotRunError, match="rocksdb2"):
        child.spawn("rocksdb2", Work(0.03), tmp_path)


def test_calls_that_overlap_share_a_commit() -> None:
    commits: list[Sequence[bytes]] = []
    first, go_on = threading.Event(), threading.Event()

    def commit(bodies: Sequence[bytes]) -> None:
        commits.append(bodies)
        first.set()
        assert go_on.wait(10)

    gathering = Gathering(commit)
    threads = [threading.Thread(target=gathering.put, args=(b"0",))]
    threads[0].start()
    assert first.wait(10)
    threads += [threading.Thread(target=gathering.put, args=(b"%d" % at,)) for at in (1, 2, 3)]
    for each in threads[1:]:
        each.start()
    while gathering._group is None or len(gathering._group.bodies) < 3:
        assert all(each.is_alive() for each in threads)
    go_on.set()
    for each in threads:
        each.join(10)
    assert [sorted(bodies) for bodies in commits] == [[b"0"], [b"1", b"2", b"3"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("append", {"threads": 2}),
        ("append", {"threads": 1, "inflight": 8}),
        ("batch", {"threads": 2, "n": 8}),
    ],
    ids=str,
)
def test_the_real_store_runs(
    mode: str, settings: dict[str, int], oracle: Oracle, tmp_path: Path
) -> None:
    sample = _run_java(0.05, mode, settings, tmp_path)
    assert sample["rows_s"] > 0
    assert 0 < sample["p50_us"] <= sample["p99_us"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_takes_messages(oracle: Oracle, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="of requirements-bench.lock")
    assert kafka.run(2, 0.2, 1024, 100_000, tmp_path)["rows_s"] > 0


def test_puts_under_slow_syncs(tmp_path: Path) -> None:
    options = {"flush": "inline", "segment_size_bytes": "1MiB", "syncer": True}
    try:
        sample = stalling.spawn(0.2, options, tmp_path, delay_ms=20)
    except CannotRunError as reason:
        if shutil.which("strace") is None:
            pytest.skip(str(reason))
        raise
    assert sample["syncs"] > 0
    assert sample["waited_us"] >= 20_000, "nothing was delayed"


@pytest.mark.parametrize(
    "killed", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["killed", "closed"]
)
def test_a_filled_store_is_opened(killed: bool, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        sample = starting.ours(TINY_BYTES, killed, tmp_path / name)
        assert 0 < sample["open_ms"] <= sample["ms"] <= sample["dispatched_ms"]
    sources = [path for path in tmp_path.iterdir() if path.name.startswith("source")]
    assert len(sources) == 1, "the second copy is of the same store"
    assert (sources[0] / "abort").exists() is killed


@pytest.mark.slow
def test_the_real_store_opens_the_same(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    sample = starting.theirs(TINY_BYTES, True, tmp_path / "one")
    assert 0 < sample["open_ms"] <= sample["ms"] <= sample["dispatched_ms"]


@pytest.mark.parametrize(
    ("way", "segments", "size"),
    [
        ("own", 2, 64 << 20),
        pytest.param("own", 2, opening.SEGMENT_BYTES, marks=pytest.mark.slow),
        pytest.param("unnoted", 1, opening.SEGMENT_BYTES, marks=pytest.mark.slow),
        pytest.param("read", 1, opening.SEGMENT_BYTES, marks=pytest.mark.slow),
    ],
)
def test_what_an_opening_costs_is_counted(
    way: str, segments: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SEGMENT_BYTES", size)
    sample = opening.ours(segments, way, tmp_path)
    assert min(sample.values()) > 0
    assert sample["read_kib"] < size / 1024 / 64  # its tail has no blocks


@pytest.mark.slow
def test_what_the_real_store_needs_for_it_is_counted(oracle: Oracle, tmp_path: Path) -> None:
    sample = opening.theirs(1, tmp_path)
    assert min(sample.values()) > 0
    assert sample.get("calls", 100) > 10


@pytest.mark.parametrize("everything", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_filled_store_is_verified(everything: bool, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert starting.verified(TINY_BYTES, everything, tmp_path / "one")["gb_s"] > 0
    (tmp_path / "two").mkdir()
    assert starting.read_and_summed(TINY_BYTES, tmp_path / "two")["gb_s"] > 0


@pytest.mark.parametrize(
    "name",
    ["durable", "durable_batch", "timed", "direct", "stall", "open", "recovery", "verify"],
)
def test_a_suite_is_complete(name: str) -> None:
    for contest in SUITES[name].contests(quick=True):
        names = [contender.name for contender in contest.contenders]
        assert names[0] == "lakelog"
        assert len(set(names)) == len(names)
