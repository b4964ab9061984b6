"""Every store and suite of the bench does the work that is described. No time is checked."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyarrow import parquet
from rich.console import Console

import lakelog
from tests.bench import finding, kafka
from tests.bench.consume.peers import PEERS
from tests.bench.consume.suites import consumed, killed
from tests.bench.content import TOPIC, run_of_records
from tests.bench.durable import opening, stalling
from tests.bench.durable.peers import Gathering, peer
from tests.bench.durable.work import Work, measure, spawn
from tests.bench.lake import messages, raw
from tests.bench.lake.job import Job
from tests.bench.lake.job import spawn as spawn_job
from tests.bench.model import LAKELOG, CannotRunError, Contender, Contest, Sample
from tests.bench.processes.calls import idle
from tests.bench.processes.owner import ATTACHED, produced, produced_elsewhere
from tests.bench.report import as_json, ratio, table
from tests.bench.rounds import Score, play
from tests.bench.running import puts_of_java
from tests.bench.suites import SUITES
from tests.support.rows import by_kind

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

SLOW = pytest.mark.slow
TINY_BYTES: Final = 1 << 20
SECONDS: Final = 0.03
OURS: Final = {"flush": "group-commit", "segment_size_bytes": "1MiB"}
PUTS: Final = Work(SECONDS, threads=3)
BATCHES: Final = Work(SECONDS, threads=2, batch_size=8)
STORES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "lakelog": ("lakelog", OURS),
    "lakelog by producers": ("lakelog", {**OURS, "flush": "none", "producers": True}),
    "raw direct": ("raw", {"direct": True, "write_bytes": 1 << 20, "sync_bytes": 2 << 20}),
    "raw unsynced": ("raw", {"sync_bytes": None}),
    "lmdb": ("lmdb", {}),
    "lmdb grouped": ("lmdb", {"grouped": True}),
    "rocksdb": ("rocksdb", {}),
    "sqlite": ("sqlite", {"journal": "WAL"}),
    "sqlite rollback": ("sqlite", {"journal": "DELETE"}),
}
SERVED: Final = 'flush = "timed"\nsegment_size_bytes = "8MiB"\n'


# --- stores ------------------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", STORES)
def test_a_store_runs(name: str, tmp_path: Path) -> None:
    kind, options = STORES[name]
    try:
        store = peer(kind)
    except CannotRunError as reason:
        pytest.skip(str(reason))
    store.open(tmp_path, options)
    works = [PUTS, BATCHES]
    if kind == "lakelog":
        works += [replace(PUTS, in_flight=8), replace(BATCHES, columns=True)]
    for work in works:
        sample = measure(store, work, SECONDS)
        assert sample["rows_s"] > 0
        assert 0 < sample["p50_us"] <= sample["p99_us"] <= sample["max_us"]
    store.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PEERS)
def test_a_queue_is_consumed(name: str, tmp_path: Path) -> None:
    try:
        assert consumed(name, 1, 8, 40, tmp_path)["rows_s"] > 0
    except CannotRunError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ["lakelog", "sqlite"])
def test_a_queue_whose_consumer_is_killed_loses_nothing(name: str, tmp_path: Path) -> None:
    found = killed(name, 2, 8, 120, tmp_path)
    assert found["never"] == 0
    assert found["twice"] <= 8, "what one process had in work"


def test_the_figures_come_out_of_a_process_of_its_own(tmp_path: Path) -> None:
    assert spawn("raw", Work(SECONDS), tmp_path)["rows_s"] > 0
    with pytest.raises(CannotRunError, match="no such setting"):
        spawn("lakelog", Work(SECONDS, options={"flash": "none"}), tmp_path)


def test_calls_that_overlap_share_a_commit() -> None:
    commits: list[Sequence[bytes]] = []
    first, go_on = threading.Event(), threading.Event()

    def commit(bodies: Sequence[bytes]) -> None:
        commits.append(bodies)
        first.set()
        assert go_on.wait(10)

    gathering = Gathering(commit)
    threads = [threading.Thread(target=gathering.put, args=(b"%d" % at,)) for at in range(4)]
    threads[0].start()
    assert first.wait(10)
    for each in threads[1:]:
        each.start()
    while gathering._group is None or len(gathering._group[0]) < 3:
        assert all(each.is_alive() for each in threads)
    go_on.set()
    for each in threads:
        each.join(10)
    assert [sorted(bodies) for bodies in commits] == [[b"0"], [b"1", b"2", b"3"]]


@SLOW
def test_the_real_store_runs_and_reads_the_records_of_all(oracle: Oracle, tmp_path: Path) -> None:
    for at, (mode, settings) in enumerate(
        (("append", {"threads": 2}), ("append", {"inflight": 8}), ("batch", {"n": 8}))
    ):
        sample = puts_of_java(mode, 0.05, tmp_path / str(at), flush="SYNC", **settings)
        assert 0 < sample["p50_us"] <= sample["p99_us"]
    log = tmp_path / "store" / "commitlog" / f"{0:020}"
    log.parent.mkdir(parents=True)
    log.write_bytes(run_of_records(40, b"body").ljust(65536, b"\0"))
    rows = by_kind(oracle.dump(tmp_path / "store", {"mappedFileSizeCommitLog": "65536"}))
    assert [row["keys"] for row in rows["msg"] if row["queueId"] == 1][:2] == ["k1", "k5"]
    assert len(rows["rec"]) == len(rows["query"]) == 40
    assert {row["topic"] for row in rows["msg"]} == {TOPIC}


@SLOW
@pytest.mark.timeout(300)
def test_a_broker_takes_messages(oracle: Oracle, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="of requirements-bench.lock")
    assert kafka.measured(2, 0.2, 1024, 100_000, tmp_path)["rows_s"] > 0


def test_puts_under_slow_syncs(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    options = {"flush": "inline", "segment_size_bytes": "1MiB", "syncer": True}
    sample = stalling.spawn(0.2, options, tmp_path, delay_ms=20)
    assert sample["syncs"] > 0
    assert sample["waited_us"] >= 20_000, "nothing was delayed"


# --- openings ----------------------------------------------------------------------------------


def test_filled_stores_are_opened_and_verified(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    sample = opening.ours(TINY_BYTES, True, tmp_path / "one")
    assert 0 < sample["open_ms"] <= sample["ms"] <= sample["dispatched_ms"]
    for name in ("two", "three"):
        (tmp_path / name).mkdir()
    assert opening.verified(TINY_BYTES, ["--all"], tmp_path / "two")["gb_s"] > 0
    assert opening.read_and_summed(TINY_BYTES, tmp_path / "three")["gb_s"] > 0
    sources = sorted(path for path in tmp_path.iterdir() if path.name.startswith("source"))
    assert [(path / "abort").exists() for path in sources] == [False, True]
    assert len(sources) == 2, "copies are of the same store"


@SLOW
def test_the_real_store_opens_the_same(oracle: Oracle, tmp_path: Path) -> None:
    for name in ("filled", "closed"):
        (tmp_path / name).mkdir()
    sample = opening.theirs(TINY_BYTES, True, tmp_path / "filled")
    assert 0 < sample["open_ms"] <= sample["ms"] <= sample["dispatched_ms"]
    sample = opening.counted_opening(1, None, tmp_path / "closed")
    assert min(sample.values()) > 0
    assert sample.get("calls", 100) > 10


@pytest.mark.parametrize(
    ("way", "segments", "size"),
    [
        ("own", 2, 64 << 20),
        *(pytest.param(way, 1, opening.SEGMENT_BYTES, marks=SLOW) for way in ("unnoted", "read")),
    ],
)
def test_what_an_opening_costs_is_counted(
    way: str, segments: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SEGMENT_BYTES", size)
    sample = opening.counted_opening(segments, way, tmp_path)
    assert min(sample.values()) > 0
    assert sample["read_kib"] < size / 1024 / 64  # its tail has no blocks


# --- finding, the lake, processes --------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("work", finding.WORK)
def test_a_way_of_finding_is_measured(work: str, tmp_path: Path) -> None:
    _, measured = finding.WORK[work]
    assert measured(tmp_path / "store", 400, b"body")["rows_s"] > 0


def test_the_ranges_of_a_store_are_all_of_it(tmp_path: Path) -> None:
    store, rows = tmp_path / "store", 1000
    messages.fill(store, rows, segment_size_bytes="4MiB")
    spans = messages.ranges(store)
    with lakelog.open(store, mode="read") as opened:
        assert (spans[0][0], spans[-1][1]) == (opened.min_offset, opened.max_offset)
        assert sum(1 for _ in opened.scan()) == rows
    target = tmp_path / "raw.parquet"
    assert sum(raw.write((store, *span, target)) for span in spans) == rows
    found, bodies = parquet.read_table(target), messages.bodies()
    assert found.column("body").to_pylist() == bodies[:rows]
    assert found.column("keys").to_pylist()[-1] == [f"k{rows - 1}"]
    assert {len(each) for each in bodies} == {messages.BODY_BYTES}
    assert len(set(bodies)) == messages.POOL


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_backlog_is_landed_by_hand_and_by_the_dispatcher(sink: str, tmp_path: Path) -> None:
    store, warm, rows = tmp_path / "store", tmp_path / "warm-store", 32 * messages.TOPICS
    for each in (store, warm):
        messages.fill_topics(each, rows, segment_size_bytes="4MiB")
    for by in ("hand", "processes"):
        job = Job(by, sink, 2, rows, str(store), str(warm), str(tmp_path / by))
        (tmp_path / by).mkdir()
        sample = spawn_job(job)
        assert sample["files"] == messages.TOPICS
        assert min(sample.values()) > 0


def test_producers_put_together(tmp_path: Path) -> None:
    works = [
        Work(SECONDS, in_flight=8, options=ATTACHED),
        Work(SECONDS, batch_size=32, columns=True, options=ATTACHED),
    ]
    sample = produced(tmp_path, SERVED, works)
    assert sample["rows_s"] > 2 / SECONDS / 2
    assert sample["cores"] > 0
    options = {"journal": "WAL", "synchronous": "NORMAL"}
    works = [Work(SECONDS, options=options), Work(SECONDS, batch_size=8, options=options)]
    assert produced_elsewhere(tmp_path, "sqlite", works)["rows_s"] > 2 / SECONDS / 2


def test_an_idle_owner_is_watched(tmp_path: Path) -> None:
    sample = idle(SERVED, 1, 0.2, tmp_path)
    assert sample["processes"] >= 1
    assert sample["pss_mib"] > 1


# --- rounds and reports ------------------------------------------------------------------------


def contender(name: str, order: list[str]) -> Contender:
    def run(directory: Path) -> Sample:
        assert not list(directory.iterdir())
        (directory / "file").touch()
        order.append(name)
        return {"rows_s": 1.0, "mb_s": 1.0}

    return Contender(name, "", run)


def absent(_directory: Path) -> Sample:
    raise CannotRunError("not installed")


def score(name: str, figures: dict[str, float], beside: dict[str, str] | None = None) -> Score:
    return Score(Contender(name, "", absent, beside or {}), [figures])


def test_each_round_begins_with_another(tmp_path: Path) -> None:
    order: list[str] = []
    play(Contest("", [contender(name, order) for name in "abc"]), 3, tmp_path, lambda _: None)
    assert "".join(order) == "abcbcacab"
    assert not list(tmp_path.iterdir())


def test_who_cannot_run_is_reported_and_the_others_run(tmp_path: Path) -> None:
    contest = Contest("", [Contender("a", "", absent), contender("b", [])])
    scores = play(contest, 2, tmp_path, lambda _: None)
    assert [len(score.samples) for score in scores] == [0, 2]
    rows = as_json(SUITES["put"], {"": scores})
    assert [row["not_run"] for row in rows] == ["not installed", None]


def test_above_one_is_faster_whoever_is_compared_with() -> None:
    figures = {"rows_s": 1.0, "ms": 1.0}
    ours, other = score(LAKELOG, figures), score("a", dict.fromkeys(figures, 2.0))
    ratios = [ratio(SUITES[suite], other, [ours, other]) for suite in ("put", "start")]
    assert ratios == [2.0, 0.5]
    beside = {"raw": "raw", "kafka": "nobody"}
    scores = [score("raw", {"rows_s": 10.0}), score("a", {"rows_s": 5.0}, beside)]
    rows = as_json(SUITES["lake"], {"": scores})
    assert [row["times"] for row in rows] == [{}, {"raw": 0.5, "kafka": None}]
    assert rows[1]["median"] == {"rows_s": 5.0}


def test_many_figures_are_printed_below_one_another() -> None:
    suite, printed = SUITES["broker"], StringIO()
    figures = {each.name: 1000.0 + at for at, each in enumerate(suite.columns)}
    scores = [score(name, figures) for name in ("a", "b")]
    table(Console(file=printed, width=110), suite, {"": scores})
    lines = printed.getvalue().splitlines()
    for each in suite.columns:
        (line,) = (line for line in lines if f" {each.heading} " in line)
        assert line.count(format(figures[each.name], each.form)) == 2


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_complete(name: str) -> None:
    for quick in (True, False):
        for contest in SUITES[name].contests(quick):
            names = [each.name for each in contest.contenders]
            assert len(set(names)) == len(names)
            others = {other for each in contest.contenders for other in each.beside.values()}
            assert others - {""} <= {*names}
