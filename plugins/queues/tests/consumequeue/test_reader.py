"""A store open for reading: missing units are in memory, and no file changes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from plugins.queues.tests.consumequeue.support import SMALL, batch_of, contents, plain, queues

QUEUE = ("t", 0)


def files_of(store: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(store)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in store.rglob("*")
        if path.is_file()
    }


def offsets(reader: ConsumeQueues, first: int = 0) -> list[int]:
    found: list[int] = reader.units(QUEUE, first, 1000).offsets.tolist()
    return found


def owned(store: Path, count: int) -> ConsumeQueues:
    made = queues(store)
    made.resume(0, 200 * count)
    made.dispatch(plain("t", range(count)))
    return made


def test_a_reader_completes_and_changes_nothing(tmp_path: Path) -> None:
    owned(tmp_path, 12).close()
    before = files_of(tmp_path)
    reader = queues(tmp_path, read_only=True)
    assert reader.resume(0, 5000) == 2400
    reader.dispatch(plain("t", range(12, 25), 2400))
    reader.dispatch(plain("new", range(7, 9), 5000))
    assert offsets(reader) == [200 * at for at in range(25)]
    assert offsets(reader, 11) == [200 * at for at in range(11, 25)]
    assert reader.bounds(QUEUE, 3000) == (15, 25)
    assert reader.bounds(("new", 0), 0) == (7, 9)
    reader.truncate(3000)
    assert offsets(reader) == [200 * at for at in range(15)]
    reader.truncate(1000)
    assert offsets(reader) == [200 * at for at in range(5)]
    reader.dispatch(plain("t", range(5, 8), 1000))
    assert offsets(reader) == [200 * at for at in range(8)]
    reader.flush()
    reader.close()
    assert files_of(tmp_path) == before


def test_units_behind_the_end_of_the_log_are_not_seen(tmp_path: Path) -> None:
    owned(tmp_path, 25).close()
    before = files_of(tmp_path)
    reader = queues(tmp_path, read_only=True)
    assert reader.resume(0, 2200) == 0  # an owner may be writing: the last batch may be incomplete
    assert offsets(reader) == [200 * at for at in range(11)]
    reader.dispatch(plain("t", range(11, 13), 2200))
    assert offsets(reader) == [200 * at for at in range(13)]
    reader.close()
    assert files_of(tmp_path) == before


def test_a_reader_puts_damaged_units_right_for_itself(tmp_path: Path) -> None:
    owned(tmp_path, 25).close()
    path = tmp_path / "consumequeue" / "t" / "0" / f"{200:020d}"
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes(20) + content[40:])
    before = files_of(tmp_path)
    reader = queues(tmp_path, read_only=True, clean=False)
    assert reader.resume(0, 5000) == 0
    reader.dispatch(plain("t", range(25)))
    assert offsets(reader) == [200 * at for at in range(25)]
    reader.close()
    assert files_of(tmp_path) == before


def test_a_reader_beside_an_owner_lets_go_of_what_the_files_hold(tmp_path: Path) -> None:
    owner = owned(tmp_path, 5)
    reader = queues(tmp_path, read_only=True, clean=False)
    reader.resume(0, 1000)
    for start in range(0, 40, 4):
        batch = plain("t", range(start, start + 4), 200 * start)
        reader.dispatch(batch)
        owner.dispatch(batch)
        assert offsets(reader) == [200 * at for at in range(max(5, start + 4))]
    memory = reader._queues[QUEUE]._memory  # type: ignore[union-attr]  # a simple queue of a reader has one
    assert memory is not None
    start_held, held = memory.held
    assert (start_held, len(held)) == (36, 4 * 20)
    owner.close()
    reader.close()


def test_reads_see_whole_units_only_while_they_are_written(tmp_path: Path) -> None:
    made = queues(tmp_path, type(SMALL)(file_entries=100))
    made.resume(0, 0)
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            bounds = made.bounds(QUEUE, 0)
            if bounds is not None:
                found = offsets(made, max(0, bounds[1] - 50))
                expected = [200 * at for at in range(max(0, bounds[1] - 50), bounds[1])]
                assert found[: len(expected)] == expected

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        for start in range(0, 2000, 10):
            made.dispatch(plain("t", range(start, start + 10), 200 * start))
        over.set()
        for each in looking:
            each.result()
    made.close()


def test_inner_batches(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{topicConfigTable:{"b":{attributes:{"queue.type":"BatchCQ"},order:false}}}'
    )
    texts = [f"INNER_NUM\x01{size}\x02INNER_BASE\x01{base}\x02" for size, base in ((3, 0), (2, 3))]
    batch = batch_of([("b", texts[0], b"x"), ("b", "", b"y"), ("b", texts[1], b"z")])
    made = queues(tmp_path, type(SMALL)(batch_file_size_bytes=46))
    made.resume(0, batch.end_offset)
    made.dispatch(batch)
    assert made.kind(("b", 0)) == "BatchCQ"
    assert made.kind(("c", 0)) == "SimpleCQ"
    assert made.bounds(("b", 0), 0) == (0, 5)
    units = made.units(("b", 0), 4, 9)
    assert (units.queue_offsets.tolist(), units.counts.tolist()) == ([3], [2])
    made.close()
    reader = queues(tmp_path, made._maker._settings, read_only=True)
    reader.resume(0, batch.end_offset)
    assert contents(reader) == contents(made)
    more = batch_of([("b", "INNER_NUM\x014\x02INNER_BASE\x015\x02", b"w")], batch.end_offset)
    reader.dispatch(more)
    reader.dispatch(more)
    assert reader.bounds(("b", 0), 0) == (0, 9)
    assert reader.units(("b", 0), 0, 9).counts.tolist() == [3, 2, 4]
    assert reader.units(("b", 0), 7, 9).offsets.tolist() == [batch.end_offset]
    reader.truncate(batch.end_offset)
    assert contents(reader) == contents(made)
    reader.close()


def test_codes_that_a_crash_took_away_are_built_again(tmp_path: Path) -> None:
    settings = type(SMALL)(ext_enabled=True, ext_file_size_bytes=204)
    batch = batch_of([("t", f"TAGS\x01tag{at}\x02", b"") for at in range(25)])
    made = queues(tmp_path, settings)
    made.resume(0, 0)
    made.dispatch(batch)
    expected = contents(made)
    made.close()
    before = {path: content for path, (content, _) in files_of(tmp_path).items()}
    ext = tmp_path / "consumequeue_ext" / "t" / "0" / f"{204:020d}"
    ext.write_bytes(ext.read_bytes()[:60].ljust(204, b"\x00"))
    again = queues(tmp_path, settings, clean=False)
    assert again.resume(0, batch.end_offset) == 0
    again.dispatch(batch)
    assert contents(again) == expected
    again.close()
    after = {path: content for path, (content, _) in files_of(tmp_path).items()}
    assert after == before


def test_batches_behind_the_end_of_the_log_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(
        '{topicConfigTable:{"b":{attributes:{"queue.type":"BatchCQ"}}}}'
    )
    texts = [f"INNER_NUM\x01{size}\x02INNER_BASE\x01{base}\x02" for size, base in ((3, 0), (2, 3))]
    batch = batch_of([("b", text, b"x") for text in texts])
    made = queues(tmp_path)
    made.resume(0, batch.end_offset)
    made.dispatch(batch)
    made.close()
    reader = queues(tmp_path, read_only=True)
    reader.resume(0, int(batch.physical_offsets[1]))
    assert reader.bounds(("b", 0), 0) == (0, 3)
    assert reader.units(("b", 0), 0, 9).counts.tolist() == [3]
    reader.dispatch(batch[1:])
    assert reader.units(("b", 0), 0, 9).counts.tolist() == [3, 2]
    reader.close()
