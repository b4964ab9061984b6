"""Variables: names, sections, what is skipped and what is refused."""

from __future__ import annotations

import pytest

from core.tests.settings.samples import Resolve
from lakelog.errors import SettingsError, UnknownSetting


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
