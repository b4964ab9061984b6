"""Which source wins, that origins are told, and that nothing slow is imported for nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.tests.settings.samples import IndexSettings, Resolve, SinkSettings, TimedSettings
from lakelog.errors import SettingsError, UnknownSetting
from lakelog.settings.model import StoreSettings

Write = Callable[[str, str], Path]


def test_nothing_given_is_all_defaults(resolved: Resolve) -> None:
    settings = resolved()
    assert settings.core == StoreSettings()
    assert settings.section("timed") == TimedSettings()
    assert set(settings.origins.values()) == {"default"}
    assert "timed.flush_interval_ms" in settings.origins
    assert settings.unused == {}


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


def test_keys_of_several_sources_come_together(resolved: Resolve, write: Write) -> None:
    write("store/lakelog/lakelog.toml", "writer = 'mmap'\n[timed]\nflush_interval_ms = '2s'\n")
    settings = resolved(
        arguments={"timed": {"flush_least_pages": 9}}, environ={"LAKELOG_RECORD_CRC": "true"}
    )
    assert settings.core.writer == "mmap"
    assert settings.core.record_crc is True
    assert settings.section("timed") == TimedSettings(flush_interval_ms=2000, flush_least_pages=9)
    assert settings.origins["timed.flush_least_pages"] == "argument"
    assert settings.origins["timed.flush_interval_ms"].endswith("lakelog.toml")


def test_an_unknown_key_is_an_error_even_below_a_stronger_source(
    resolved: Resolve, write: Write
) -> None:
    write("pyproject.toml", "[tool.lakelog]\nwritr = 'mmap'")
    with pytest.raises(UnknownSetting) as caught:
        resolved(arguments={"writer": "file"})
    assert caught.value.key == "writr"
    assert str(caught.value.source).endswith("pyproject.toml [tool.lakelog]")
    assert "nearest known one is writer" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ({"segment_size": 1}, "segment_size_bytes"),
        ({"timed": {"flush_intervall_ms": 1}}, "timed.flush_interval_ms"),
        ({"flush_interval_ms": 1}, "timed.flush_interval_ms"),
        ({"slots": 1}, "hash-index.slots"),
        ({"file_entries": 1}, "consume-queue.file_entries"),
        ({"mappedFileSizeCommitLog": 1}, "segment_size_bytes"),
        ({"timed.flush_interval": 1}, "timed.flush_interval_ms"),
    ],
)
def test_the_nearest_key_is_named(
    resolved: Resolve, arguments: dict[str, object], near: str
) -> None:
    with pytest.raises(UnknownSetting) as caught:
        resolved(arguments=arguments)
    assert str(caught.value).endswith(f"the nearest known one is {near}")


def test_a_section_of_nobody(resolved: Resolve) -> None:
    with pytest.raises(UnknownSetting) as caught:
        resolved(arguments={"timd": {"flush_interval_ms": 1}})
    message = str(caught.value)
    assert "no installed plugin has a section [timd]" in message
    assert "group-commit" in message
    assert "did you mean [timed]" in message


def test_a_section_of_nobody_is_noted_where_that_is_tolerated(resolved: Resolve) -> None:
    arguments = {"spark": {"target": "x"}, "empty": {}, "timed": {}}
    settings = resolved(arguments=arguments, tolerate_missing=True)
    assert set(settings.unused) == {"spark.target", "empty"}
    assert "[spark]" in settings.unused["spark.target"]
    with pytest.raises(UnknownSetting):
        resolved(arguments={"timed": {"x": 1}}, tolerate_missing=True)
    with pytest.raises(UnknownSetting):
        resolved(arguments={"x": 1}, tolerate_missing=True)


def test_an_empty_section_of_nobody_is_an_error_too(resolved: Resolve) -> None:
    with pytest.raises(UnknownSetting, match=r"\[spark\]"):
        resolved(arguments={"spark": {}})


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


def test_a_key_without_its_section_is_found_however_long_that_is(resolved: Resolve) -> None:
    with pytest.raises(UnknownSetting, match=r"is index-with-a-long-name\.slots$"):
        resolved(arguments={"slots": 1}, sections={"index-with-a-long-name": IndexSettings})


@pytest.mark.parametrize(
    "given",
    [
        {"arguments": {"services": {"dispatch": "process"}}},
        {"arguments": {"services.restart_ms": 5}},
        {"environ": {"LAKELOG_SERVICES__DISPATCH": "process"}},
    ],
)
def test_a_setting_that_was_removed_is_explained(
    resolved: Resolve, given: dict[str, object]
) -> None:
    with pytest.raises(UnknownSetting) as caught:
        resolved(**given)
    words = str(caught.value)
    assert words.startswith("services.")
    assert words.endswith("compiled and runs in the owner or in `lakelog serve`; delete it")
    assert "install" not in words
    (note,) = resolved(**given, tolerate_missing=True).unused.values()
    assert "was removed" in note
