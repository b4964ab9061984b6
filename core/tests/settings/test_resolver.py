"""Which source wins, what arguments, variables and sizes of files say; origins are told."""

from __future__ import annotations

import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelog_hash_index.plugin
import lakelog_rocketmq.plugin
from core.tests.settings.samples import (
    GroupCommitSettings,
    IndexSettings,
    Resolve,
    SinkSettings,
    TimedSettings,
)
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.hooks.kinds import StoreSettings
from lakelog.settings.resolver import file_size
from lakelog_rocketmq.broker_conf import parse_properties

Write = Callable[[str, str], Path]


def test_the_order_of_the_sources(
    resolved: Resolve, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Drop one source after the other: each time the next one counts."""
    host = write("site/hostapp_a/__init__.py", "").parent
    monkeypatch.syspath_prepend(host.parent)
    __import__("hostapp_a")
    (host / "lakelog.toml").write_text("queues_per_topic = 7")
    broker = write("broker.conf", "defaultTopicQueueNums = 4\nmaxMessageSize=1")
    write("store/lakelog/lakelog.toml", "queues_per_topic = 5")
    write("pyproject.toml", "[tool.lakelog]\nqueues_per_topic = 6")
    given = write("given.toml", "queues_per_topic = 3")
    environ = {"LAKELOG_QUEUES_PER_TOPIC": "2"}

    def who(**kwargs: object) -> tuple[int, str]:
        settings = resolved(**kwargs)
        return settings.core.queues_per_topic, settings.origins["queues_per_topic"]

    mapping = {"queues_per_topic": 10}
    arguments = {"queues_per_topic": 1}
    assert who(arguments=arguments, source=mapping, environ=environ) == (1, "argument")
    assert who(source=mapping, environ=environ) == (10, "argument settings")
    last = {"environ": environ, "source": str(given), "broker_conf": broker}
    assert who(**last) == (2, "environment LAKELOG_QUEUES_PER_TOPIC")
    del last["environ"]
    assert who(**last) == (3, str(given))
    del last["source"]
    assert who(**last) == (4, f"{broker} (defaultTopicQueueNums)")
    resource = {"source": host / "lakelog.toml"}
    assert who(**resource) == (5, str(tmp_path / "store/lakelog/lakelog.toml"))
    (tmp_path / "store/lakelog/lakelog.toml").unlink()
    assert who(**resource) == (6, f"{tmp_path}/pyproject.toml [tool.lakelog]")
    (tmp_path / "pyproject.toml").unlink()
    assert who(**resource) == (7, f"{host}/lakelog.toml (in package hostapp_a)")
    assert who() == (4, "default")


def test_an_unknown_key_is_an_error_even_below_a_stronger_source(
    resolved: Resolve, write: Write
) -> None:
    write("pyproject.toml", "[tool.lakelog]\nwritr = 'mmap'")
    with pytest.raises(UnknownSetting) as caught:
        resolved(arguments={"writer": "file"})
    assert caught.value.key == "writr"
    assert str(caught.value.source).endswith("pyproject.toml [tool.lakelog]")
    assert "nearest known one is writer" in str(caught.value)


def test_the_nearest_key_is_named(resolved: Resolve) -> None:
    for arguments, near in (
        ({"segment_size": 1}, "segment_size_bytes"),
        ({"timed": {"flush_intervall_ms": 1}}, "timed.flush_interval_ms"),
        ({"flush_interval_ms": 1}, "timed.flush_interval_ms"),
        ({"file_entries": 1}, "consume-queue.file_entries"),
        ({"mappedFileSizeCommitLog": 1}, "segment_size_bytes"),
        ({"timed.flush_interval": 1}, "timed.flush_interval_ms"),
    ):
        with pytest.raises(UnknownSetting) as caught:
            resolved(arguments=arguments)
        assert str(caught.value).endswith(f"the nearest known one is {near}")
    with pytest.raises(UnknownSetting, match=r"is index-with-a-long-name\.slots$"):
        resolved(arguments={"slots": 1}, sections={"index-with-a-long-name": IndexSettings})


def test_a_section_of_nobody_is_an_error_or_noted_where_that_is_tolerated(
    resolved: Resolve,
) -> None:
    with pytest.raises(UnknownSetting) as caught:
        resolved(arguments={"timd": {"flush_interval_ms": 1}})
    message = str(caught.value)
    assert "no installed plugin has a section [timd]" in message
    assert "group-commit" in message
    assert "did you mean [timed]" in message
    with pytest.raises(UnknownSetting, match=r"\[spark\]"):
        resolved(arguments={"spark": {}})
    arguments = {"spark": {"target": "x"}, "empty": {}, "timed": {}}
    settings = resolved(arguments=arguments, tolerate_missing=True)
    assert set(settings.unused) == {"spark.target", "empty"}
    assert "[spark]" in settings.unused["spark.target"]
    for unknown in ({"timed": {"x": 1}}, {"x": 1}):
        with pytest.raises(UnknownSetting):
            resolved(arguments=unknown, tolerate_missing=True)


def test_a_section_that_must_be_set_is_missing_until_it_is(resolved: Resolve) -> None:
    settings = resolved()
    with pytest.raises(SettingsError, match="sink"):
        settings.section("sink")
    settings = resolved(arguments={"sink": {"target": "here", "share_ratio": "75%"}})
    assert settings.section("sink") == SinkSettings(target="here", share_ratio=0.75)
    with pytest.raises(SettingsError, match=r"sink\.target must be set too"):
        resolved(arguments={"sink": {"share_ratio": 0.1}})


def test_a_value_that_a_validator_refuses_is_blamed(resolved: Resolve, write: Write) -> None:
    write("store/lakelog/lakelog.toml", "max_light_queues = 1\nsegment_size_bytes = '1KiB'")
    with pytest.raises(SettingsError) as caught:
        resolved(arguments={"queues_per_topic": 2})
    assert caught.value.key == "segment_size_bytes"
    assert str(caught.value.source).endswith("lakelog.toml")


def test_the_fast_path_imports_nothing_slow(store: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from lakelog.registry import Registry
from lakelog.settings.resolver import resolve
path = Path({str(store)!r})
installed = Registry.load(None, {{}}).installed(path)
resolve(path, installed=installed, arguments={{"segment_size_bytes": "1MiB"}},
        source=None, broker_conf=None, environ={{}}, cwd=Path("/"), tolerate_missing=False)
slow = {{"tomllib", "difflib", "lakelog_rocketmq.broker_conf"}}
print(sorted(slow & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "[]"


def test_a_section_is_a_mapping_or_its_own_class(resolved: Resolve) -> None:
    for timed in ({"flush_interval_ms": 7}, TimedSettings(flush_interval_ms=7)):
        settings = resolved(arguments={"timed": timed})
        assert settings.section("timed").flush_interval_ms == 7
        assert settings.origins["timed.flush_least_pages"] == "default"


def test_a_key_may_be_dotted_and_a_section_named_by_an_identifier(resolved: Resolve) -> None:
    for wanted in (
        {"group-commit": {"sync_flush_timeout_ms": 3000}},
        {"group_commit": {"sync_flush_timeout_ms": "3s"}},
        {"group_commit.sync_flush_timeout_ms": "3s"},
        MappingProxyType({"group-commit": MappingProxyType({"sync_flush_timeout_ms": 3000})}),
    ):
        section = resolved(source=wanted).section("group-commit")
        assert section == GroupCommitSettings(sync_flush_timeout_ms=3000)


def test_an_object_gives_what_differs_from_its_defaults(resolved: Resolve) -> None:
    settings = resolved(
        source=StoreSettings(segment_size_bytes=65536),
        environ={"LAKELOG_SEGMENT_SIZE_BYTES": "1MiB", "LAKELOG_WRITER": "mmap"},
    )
    assert settings.core.segment_size_bytes == 65536
    assert settings.core.writer == "mmap"
    timed = resolved(source=TimedSettings(flush_least_pages=1)).section("timed")
    assert timed.flush_least_pages == 1

    @attrs.frozen
    class Host:
        writer: str
        timed: TimedSettings

    settings = resolved(source=Host("mmap", TimedSettings(flush_interval_ms=1)))
    assert settings.core.writer == "mmap"
    assert settings.section("timed").flush_interval_ms == 1


def test_effective_settings_can_be_given_again(resolved: Resolve, store: Path) -> None:
    (store / "commitlog").mkdir(parents=True)
    segment = store / "commitlog" / f"{0:020d}"
    segment.write_bytes(bytes(8192))
    first = resolved(arguments={"writer": "mmap", "timed": {"flush_interval_ms": 1}})
    assert first.core.segment_size_bytes == 8192
    segment.unlink()
    again = resolved(source=first, environ={"LAKELOG_FLUSH": "none"})
    assert again.core.writer == "mmap"
    assert again.core.flush == "none"
    assert again.core.segment_size_bytes == 1 << 30, "what files told is theirs alone"
    assert again.section("timed").flush_interval_ms == 1
    assert again.origins["append"] == "default"


def test_what_cannot_be_settings(resolved: Resolve) -> None:
    for wanted, match in (
        ({"arguments": {"timed": 5}}, r"timed in argument.*\[timed\]"),
        ({"arguments": {"writer": {"a": 1}}}, r"writer in argument: expected a string"),
        ({"source": 5}, "settings= is a int"),
    ):
        with pytest.raises(SettingsError, match=match):
            resolved(**wanted)


def test_variables_set_core_and_sections(resolved: Resolve) -> None:
    settings = resolved(
        environ={
            "LAKELOG_WRITER": "mmap",
            "LAKELOG_TIMED__FLUSH_INTERVAL_MS": "2s",
            "LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS": "7",
            "LAKELOG_DISPATCHERS": "consume-queue,hash-index",
            "LAKELOG_REPLICATOR": "",
            "HOME": "/",
            "LAKELOG_DISABLE_PLUGINS": "a,b",
            "lakelog_writer": "ignored",
        }
    )
    assert settings.core.writer == "mmap"
    assert settings.core.dispatchers == ("consume-queue", "hash-index")
    assert settings.core.replicator is None
    assert settings.section("timed").flush_interval_ms == 2000
    assert settings.section("group-commit").sync_flush_timeout_ms == 7
    assert settings.unused == {}
    origin = settings.origins["group-commit.sync_flush_timeout_ms"]
    assert origin == "environment LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS"


def test_a_variable_that_matches_nothing(resolved: Resolve) -> None:
    for name, near in (
        ("LAKELOG_SEGMENT_SIZ_BYTES", "LAKELOG_SEGMENT_SIZE_BYTES"),
        ("LAKELOG_TIMED__FLUSH_INTERVAL", "LAKELOG_TIMED__FLUSH_INTERVAL_MS"),
        ("LAKELOG_GROUP_COMMIT_SYNC_FLUSH_TIMEOUT_MS", "GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS"),
        ("LAKELOG_MY_SINK__TARGET", "[my-sink]"),
    ):
        with pytest.raises(UnknownSetting) as caught:
            resolved(environ={name: "1"})
        assert near in str(caught.value)
        assert name in str(caught.value)
    unused = resolved(environ={"LAKELOG_MY_SINK__TARGET": "x"}, tolerate_missing=True).unused
    assert list(unused) == ["my-sink.target"]
    with pytest.raises(SettingsError) as wrong:
        resolved(environ={"LAKELOG_QUEUES_PER_TOPIC": "yes"})
    assert wrong.value.key == "queues_per_topic"
    assert wrong.value.source == "environment LAKELOG_QUEUES_PER_TOPIC"


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
    return default | {key: value for key, value in found.items() if key in default}


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
