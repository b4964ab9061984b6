"""Sizes told by files: pure functions, and the same on directories that RocketMQ wrote."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelog_hash_index.plugin
import lakelog_rocketmq.plugin
from core.tests.settings.samples import Resolve
from lakelog.settings.inferred import file_size
from lakelog_rocketmq.java_properties import parse_properties

FIXTURES = Path(__file__).parents[3] / "tests" / "data" / "fixtures"
MIB = 1 << 20


def _log(*files: tuple[int, int]) -> list[tuple[str, int]]:
    return [(f"{start:020d}", length) for start, length in files]


def test_the_size_of_a_log() -> None:
    for files, expected in (
        ([], None),
        ([(3 * MIB, MIB)], MIB),
        ([(0, 100), (MIB, 50)], MIB),
        ([(0, 4096), (MIB, 0)], MIB),
        ([(5 * MIB, MIB), (7 * MIB, MIB), (8 * MIB, 3)], MIB),
        ([(MIB, 100)], None),
        ([(0, 0)], None),
    ):
        found = file_size(_log(*files))
        assert (found and found[0]) == expected
    assert file_size(_log((0, 7), (MIB, MIB))) == (MIB, f"{MIB:020d}"), "the file that tells"
    others = [("x", 5), ("0", 6), ("\u0660" * 20, 7)]
    assert file_size([*_log((0, MIB)), *others]) == (MIB, "0" * 20)


@given(st.integers(1, 1 << 40), st.integers(0, 50), st.integers(1, 6), st.data())
def test_a_log_with_one_whole_file_before_a_torn_one(
    size: int, first: int, count: int, data: st.DataObject
) -> None:
    torn = data.draw(st.integers(0, size))
    files = [((first + at) * size, size) for at in range(count)]
    files.append(((first + count) * size, torn))
    random.Random(size).shuffle(files)
    found = file_size(_log(*files))
    assert found is not None
    assert found[0] == size


@pytest.mark.parametrize("name", sorted(file.name for file in FIXTURES.glob("*.tar.xz")))
def test_stores_of_rocketmq_tell_what_their_options_say(
    name: str, store: Path, resolved: Resolve
) -> None:
    options = {key: int(text) for key, text in _unpack_sizes(FIXTURES / name, store).items()}
    settings = resolved(plugins=(lakelog_rocketmq.plugin, lakelog_hash_index.plugin))
    assert settings.core.segment_size_bytes == options["mappedFileSizeCommitLog"]
    entries = settings.section("consume-queue").file_entries
    assert entries == options["mappedFileSizeConsumeQueue"] // 20
    index = settings.section("hash-index")
    assert (index.slots, index.entries) == (options["maxHashSlotNum"], options["maxIndexNum"])
    assert settings.origins["hash-index.slots"].startswith("inferred from index/")


def _unpack_sizes(archive: Path, store: Path) -> dict[str, str]:
    """Make empty files of the archive's lengths; the options of the broker that wrote it."""
    options = b""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inside = member.name.partition("/")
            if inside == "options":
                extracted = tar.extractfile(member)
                options = extracted.read() if extracted else b""
            elif inside.startswith("store/") and member.isfile():
                file = store / inside.removeprefix("store/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
                with file.open("r+b") as opened:
                    opened.truncate(member.size)
    found = parse_properties(options, "options")
    default = {
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
    }
    return default | {key: one.value for key, one in found.items() if key in default}


def test_files_are_looked_for_where_settings_say(store: Path, resolved: Resolve) -> None:
    _segment(store / "commitlog", 65536)
    assert resolved().core.segment_size_bytes == 65536
    assert resolved(arguments={"segment_size_bytes": "1MiB"}).core.segment_size_bytes == MIB
    _segment(store / "elsewhere", 8192)
    settings = resolved(arguments={"commitlog_path": "elsewhere"})
    assert settings.core.segment_size_bytes == 8192
    origin = settings.origins["segment_size_bytes"]
    assert origin == "inferred from elsewhere/00000000000000000000"
    _segment(store / "stump", 100)
    origins = resolved(arguments={"commitlog_path": "stump"}).origins
    assert origins["segment_size_bytes"] == "default"


def test_one_of_two_sizes_may_be_given(store: Path, resolved: Resolve) -> None:
    (store / "index").mkdir(parents=True)
    (store / "index" / "20261120232352005").write_bytes(bytes(8440))
    given = {"hash-index": {"slots": 7}}
    index = resolved(arguments=given, plugins=[lakelog_hash_index.plugin]).section("hash-index")
    assert (index.slots, index.entries) == (7, 400)


def _segment(directory: Path, length: int) -> None:
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(bytes(length))
