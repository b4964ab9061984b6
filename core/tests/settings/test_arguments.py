"""Keyword arguments, mappings and attrs objects; variables of the environment."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import attrs
import pytest

from core.tests.settings.samples import GroupCommitSettings, Resolve, TimedSettings
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.settings.model import StoreSettings


def test_a_section_is_a_mapping_or_its_own_class(resolved: Resolve) -> None:
    for timed in ({"flush_interval_ms": 7}, TimedSettings(flush_interval_ms=7)):
        settings = resolved(arguments={"timed": timed})
        assert settings.section("timed").flush_interval_ms == 7
        assert settings.origins["timed.flush_least_pages"] == "default"


@pytest.mark.parametrize("name", ["group-commit", "group_commit"])
def test_the_name_of_a_section_may_be_an_identifier(resolved: Resolve, name: str) -> None:
    settings = resolved(arguments={name: {"sync_flush_timeout_ms": 3}})
    assert settings.section("group-commit") == GroupCommitSettings(sync_flush_timeout_ms=3)


def test_a_key_may_be_dotted(resolved: Resolve) -> None:
    settings = resolved(arguments={"group_commit.sync_flush_timeout_ms": "3s"})
    assert settings.section("group-commit").sync_flush_timeout_ms == 3000


def test_any_mapping_will_do(resolved: Resolve) -> None:
    source = MappingProxyType({"writer": "mmap", "timed": MappingProxyType({"names": ["a"]})})
    settings = resolved(source=source)
    assert settings.core.writer == "mmap"
    assert settings.section("timed").names == ("a",)


def test_an_object_gives_what_differs_from_its_defaults(resolved: Resolve) -> None:
    settings = resolved(
        source=StoreSettings(segment_size_bytes=65536),
        environ={"LAKELOG_SEGMENT_SIZE_BYTES": "1MiB", "LAKELOG_WRITER": "mmap"},
    )
    assert settings.core.segment_size_bytes == 65536
    assert settings.core.writer == "mmap"
    assert (
        resolved(source=TimedSettings(flush_least_pages=1)).section("timed").flush_least_pages == 1
    )


def test_an_object_of_the_host_will_do(resolved: Resolve) -> None:
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


def test_a_section_needs_a_table(resolved: Resolve) -> None:
    with pytest.raises(SettingsError, match=r"timed in argument.*\[timed\]"):
        resolved(arguments={"timed": 5})
    with pytest.raises(SettingsError, match=r"writer in argument: expected a string"):
        resolved(arguments={"writer": {"a": 1}})


def test_what_cannot_be_settings(resolved: Resolve) -> None:
    with pytest.raises(SettingsError, match="settings= is a int"):
        resolved(source=5)


# --- variables ---


def test_core_and_sections(resolved: Resolve) -> None:
    settings = resolved(
        environ={
            "LAKELOG_WRITER": "mmap",
            "LAKELOG_TIMED__FLUSH_INTERVAL_MS": "2s",
            "LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS": "7",
            "LAKELOG_DISPATCHERS": "consume-queue,hash-index",
            "LAKELOG_REPLICATOR": "",
            "HOME": "/",
            "lakelog_writer": "ignored",
        }
    )
    assert settings.core.writer == "mmap"
    assert settings.core.dispatchers == ("consume-queue", "hash-index")
    assert settings.core.replicator is None
    assert settings.section("timed").flush_interval_ms == 2000
    assert settings.section("group-commit").sync_flush_timeout_ms == 7
    origin = settings.origins["group-commit.sync_flush_timeout_ms"]
    assert origin == "environment LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS"


def test_variables_that_are_read_elsewhere(resolved: Resolve) -> None:
    assert resolved(environ={"LAKELOG_DISABLE_PLUGINS": "a,b"}).unused == {}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LAKELOG_SEGMENT_SIZ_BYTES", "LAKELOG_SEGMENT_SIZE_BYTES"),
        ("LAKELOG_TIMED__FLUSH_INTERVAL", "LAKELOG_TIMED__FLUSH_INTERVAL_MS"),
        ("LAKELOG_GROUP_COMMIT_SYNC_FLUSH_TIMEOUT_MS", "GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS"),
    ],
)
def test_a_variable_that_matches_nothing(resolved: Resolve, name: str, near: str) -> None:
    with pytest.raises(UnknownSetting) as caught:
        resolved(environ={name: "1"})
    assert name in str(caught.value)
    assert near in str(caught.value)


def test_a_section_of_nobody(resolved: Resolve) -> None:
    environ = {"LAKELOG_MY_SINK__TARGET": "x"}
    with pytest.raises(UnknownSetting, match=r"\[my-sink\]"):
        resolved(environ=environ)
    assert list(resolved(environ=environ, tolerate_missing=True).unused) == ["my-sink.target"]


def test_a_wrong_value_names_the_variable(resolved: Resolve) -> None:
    with pytest.raises(SettingsError) as caught:
        resolved(environ={"LAKELOG_QUEUES_PER_TOPIC": "yes"})
    assert caught.value.key == "queues_per_topic"
    assert caught.value.source == "environment LAKELOG_QUEUES_PER_TOPIC"
