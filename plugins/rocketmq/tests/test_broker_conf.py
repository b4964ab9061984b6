"""RocketMQ's broker.conf: keys that are used, keys that are reported, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.settings.samples import SECTIONS
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.hooks import SettingsFormat
from lakelog.hooks.kinds import StoreSettings
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog_rocketmq import plugin
from lakelog_rocketmq.broker_conf import DISK, TABLE, BrokerConf, disk_line, parse_properties
from lakelog_testing import PluginContract, SettingsFormatContract


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store directory that is not there yet."""
    return tmp_path / "store"


@pytest.fixture
def broker(store: Path, tmp_path: Path) -> Callable[..., Settings]:
    """`resolve` with a broker.conf of these lines."""

    def run(text: str, sections: Mapping[str, type[Any]] = SECTIONS, **given: Any) -> Settings:
        file = tmp_path / "broker.conf"
        file.write_text(text)
        installed = Registry.load([plugin], {}).installed(store)
        return resolve(
            store,
            installed=installed._replace(sections=sections),
            arguments=given,
            source=None,
            broker_conf=file,
            environ={},
            cwd=tmp_path,
            tolerate_missing=False,
        )

    return run


class TestBrokerConf(SettingsFormatContract):
    sample = b"flushDiskType=SYNC_FLUSH\nbrokerIP1=10.0.0.1\nbrokerName=a\nmaxMessageSize=5\n"
    wrong = b"flushDiskType=FAST\n"

    def make(self) -> SettingsFormat:
        return BrokerConf(Path("/nowhere"))


class TestPlugin(PluginContract):
    plugin = plugin


def test_a_usual_file(broker: Any, tmp_path: Path) -> None:
    settings = broker(
        """
        # of the distribution
        brokerClusterName = DefaultCluster
        brokerName = broker-a
        brokerId = 0
        deleteWhen = 04
        fileReservedTime = 48
        brokerRole = ASYNC_MASTER
        flushDiskType = ASYNC_FLUSH
        mappedFileSizeCommitLog = 65536
        mappedFileSizeConsumeQueue = 2001
        maxHashSlotNum = 100
        flushIntervalCommitLog: 700
        """
    )
    assert settings.core.flush == "timed"
    assert settings.core.segment_size_bytes == 65536
    assert settings.section("consume-queue").file_entries == 101
    assert settings.section("hash-index").slots == 100
    assert settings.section("timed").flush_interval_ms == 700
    origin = f"{tmp_path}/broker.conf (flushIntervalCommitLog)"
    assert settings.origins["timed.flush_interval_ms"] == origin
    unused = {"brokerClusterName", "brokerName", "brokerId", "deleteWhen", "fileReservedTime"}
    assert set(settings.unused) == unused
    assert "retention.delete_when: no installed plugin" in settings.unused["deleteWhen"]
    assert "no meaning here" in settings.unused["brokerName"]
    assert all(str(tmp_path) in why for why in settings.unused.values())


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("flushDiskType=SYNC_FLUSH", "flush", "group-commit"),
        ("transientStorePoolEnable=true", "writer", "staged"),
        ("maxMessageSize=5", "max_message_size_bytes", 5),
        ("enabledAppendPropCRC=true", "record_crc", True),
        ("enableLmq=true\nenableMultiDispatch=true", "light_queues", True),
        ("enableLmq=true", "light_queues", False),
        ("brokerIP1=10.0.0.1\nlistenPort=5", "store_host", "10.0.0.1:5"),
        ("brokerIP1=10.0.0.1", "store_host", "10.0.0.1:10911"),
        ("listenPort=5", "store_host", "127.0.0.1:5"),
        ("brokerIP1=\\:\\:1", "store_host", "[::1]:10911"),
    ],
)
def test_core_settings(broker: Any, line: str, key: str, value: object) -> None:
    settings = broker(line)
    assert getattr(settings.core, key) == value
    assert settings.unused == {}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("maxMessageSize=4M", "maxMessageSize in"),
        ("flushDiskType=FAST", "SYNC_FLUSH, ASYNC_FLUSH"),
        ("enableLmq=yes", "expected one of true, false"),
        ("listenPort=x", "brokerIP1, listenPort in"),
        ("storePathCommitLog=/a,/b", "several commit log directories"),
        ("mappedFileSizeCommitLog=100", "must be >= 4096"),
    ],
)
def test_wrong_values(broker: Any, line: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        broker(line)
    assert "broker.conf" in str(caught.value.source)


def test_what_is_always_so_is_reported_only_if_it_is_wanted_otherwise(broker: Any) -> None:
    assert broker("checkCRCOnRecover=true\nforceVerifyPropCRC=true").unused == {}
    unused = broker("checkCRCOnRecover=false").unused
    assert "always checks" in unused["checkCRCOnRecover"]


def test_what_nobody_can_take_is_reported(broker: Any) -> None:
    assert "flushIntervalCommitLog" in broker("flushIntervalCommitLog=1", sections={}).unused
    unused = broker("mappedFileSizeConsumeQueueExt=4096").unused
    assert "ext_file_size_bytes is not a setting" in unused["mappedFileSizeConsumeQueueExt"]


def test_a_commit_log_elsewhere(broker: Any, store: Path) -> None:
    settings = broker(f"storePathRootDir={store}\nstorePathCommitLog={store}/commitlog")
    assert (settings.core.commitlog_path, settings.unused) == (None, {})
    settings = broker(f"storePathRootDir={store}/\nstorePathCommitLog=/log")
    assert settings.core.commitlog_path == Path("/log")
    assert broker("storePathCommitLog=/log").core.commitlog_path == Path("/log")


def test_a_copy_never_points_back_at_its_original(broker: Any, store: Path) -> None:
    settings = broker("storePathRootDir=/original\nstorePathCommitLog=/original/commitlog")
    assert settings.core.commitlog_path is None
    assert set(settings.unused) == {"storePathRootDir"}
    assert str(store) in settings.unused["storePathRootDir"]
    settings = broker("storePathRootDir=/original\nstorePathCommitLog=/original/log")
    assert settings.core.commitlog_path == store / "log"
    settings = broker("storePathRootDir=/original\nstorePathCommitLog=/log")
    assert settings.core.commitlog_path is None
    assert set(settings.unused) == {"storePathRootDir", "storePathCommitLog"}


def test_the_table_names_keys_that_exist_and_every_conversion_can_be_had() -> None:
    known = {field.name for field in attrs.fields(StoreSettings)}
    planned = set(SECTIONS) | {"staged", "mmap", "retention"}
    words = {"deleteWhen": "04", "flushDiskType": "SYNC_FLUSH"}
    for name, rule in TABLE.items():
        section, _, key = rule.target.rpartition(".")
        assert section in planned if section else key in known, name
        values = []
        for text in (words.get(name, "70"), "true"):
            with suppress(ValueError):
                values.append(rule.convert(text))
        assert values, name
    assert TABLE["mapperFileSizeBatchConsumeQueue"].convert("47") == 92


def test_a_key_of_rocketmqs_among_ours_is_translated(broker: Any) -> None:
    near = "the nearest known one is timed.flush_interval_ms$"
    with pytest.raises(UnknownSetting, match=near):
        broker("", flushIntervalCommitLog=1)


@pytest.mark.parametrize(
    ("percents", "lines"),
    [
        ((70, 80, 88), {"max_used": 0.7, "clean_forcibly": 0.8, "warning": 0.88}),
        ((88, None, None), {"max_used": 0.85}),
        ((1, None, None), {"max_used": 0.1}),
        ((None, 60, None), {"max_used": 0.6, "clean_forcibly": 0.6}),
        ((None, 99, 99), {"clean_forcibly": 0.85, "warning": 0.9}),
        ((None, None, 10), {"max_used": 0.35, "clean_forcibly": 0.35, "warning": 0.35}),
    ],
)
def test_the_lines_of_a_disk_are_in_order_and_within_rocketmqs_bounds(
    percents: tuple[int | None, ...], lines: dict[str, float]
) -> None:
    keys = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
    texts = {key: str(each) for key, each in zip(keys, percents, strict=True) if each is not None}
    found = {line: disk_line(texts, line) for line in DISK}
    said = {f"{line}_ratio": value for line, value in lines.items()}
    assert {line: each.value for line, each in found.items() if each} == said
    assert all(each.keys for each in found.values() if each)


def test_a_line_of_a_disk_that_is_no_number_is_blamed_by_its_name(broker: Any) -> None:
    with pytest.raises(SettingsError, match=r"^diskSpaceWarningLevelRatio in"):
        broker("diskMaxUsedSpaceRatio=70\ndiskSpaceWarningLevelRatio=much")


# --- the format, as java.util.Properties reads it ---


def _read(text: str) -> dict[str, str]:
    return parse_properties(text.encode("latin-1"), "broker.conf")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("  \t\fa\t=\fb", {"a": "b"}),
        ("# a=b\n! c=d\n  # e=f", {}),
        ("a=#b", {"a": "#b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("# a \\\nb=c", {"b": "c"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=é", {"a": "é"}),
        ("a=b\x85c\x1cd", {"a": "b\x85c\x1cd"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("", {}),
    ],
)
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert _read(text) == expected


def test_a_broken_escape_is_an_error_with_its_line() -> None:
    with pytest.raises(SettingsError, match=r"broker\.conf: line 2: \\u needs"):
        _read("a=b\npath=C:\\users")


_TEXTS = st.text(st.characters(max_codepoint=0x10FFFF, exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(_TEXTS.filter(bool), _TEXTS, max_size=5), st.sampled_from(["=", ":", " "]))
def test_what_is_stored_is_read(table: dict[str, str], separator: str) -> None:
    text = "\n".join(f"{_escaped(k)}{separator}{_escaped(v)}" for k, v in table.items())
    assert _read(text) == table


@given(st.binary(max_size=60).filter(lambda data: b"\\u" not in data))
def test_any_bytes_without_escapes_of_code_units_are_read(data: bytes) -> None:
    parse_properties(data, "x")


def _escaped(text: str) -> str:
    """As java.util.Properties.store writes it, more or less."""
    return "".join(_escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    if char in "=: #!\\":
        return "\\" + char
    if " " < char < "\x7f":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
