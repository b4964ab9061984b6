"""The agreement of the processes of a store: plugins, their versions, settings of sections."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import lakelog
from core.tests.store.support import SEGMENT, open_small, read_small
from core.tests.store.workers import Worker, a_worker
from lakelog.errors import SettingsError
from lakelog.processes.shared_page import SETTINGS_BYTES
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog.store.agreeing import DIGESTS, SECTIONS, agreed, shared_settings

PACKAGE: Final = '''
"""An append callback that marks each body."""
from types import ModuleType
import attrs
from lakelog.builtin import RocketmqAppendCallback
from lakelog.hooks.hookspecs import hookimpl
from lakelog.hooks import Factory, Kind

@attrs.frozen
class Marking:
    """:ivar mark: behind each body; :ivar key: a secret; :ivar words: as many as one likes."""
    mark: str = "."
    key: str = attrs.field(default="", repr=False)
    words: tuple[str, ...] = ()

class Marker:
    def __init__(self, settings, context):
        self.settings, self.inner = settings, RocketmqAppendCallback.of(context.core)
        self.place = self.inner.place

    def encode(self, messages):
        mark = self.settings.mark.encode()
        return self.inner.encode([attrs.evolve(m, body=m.body + mark) for m in messages])

@hookimpl
def lakelog_append_callbacks():
    return [Factory(Kind.APPEND_CALLBACK, "marking", Marking, Marker)]
'''
USED: Final[dict[str, Any]] = {"plugins": None, "append": "marking"}
Install = Callable[[str | None], None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


def installed(place: Path, version: str | None) -> str:
    """``PYTHONPATH`` for processes that have the package in a version, or do not have it."""
    former = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if version is None:
        return os.pathsep.join(former)
    folder = place / f"site-{version}"
    info = folder / f"acme_marking-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "acme_marking.py").write_text(PACKAGE)
    (info / "METADATA").write_text(f"Name: acme-marking\nVersion: {version}\n\n")
    (info / "entry_points.txt").write_text("[lakelog]\nmarking = acme_marking\n")
    return os.pathsep.join([str(folder), *filter(None, former)])


@pytest.fixture
def install(place: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a version for processes that start later; by default that of the first process."""
    former = {each: installed(place, each) for each in (None, "1.2.3", "1.2.4", "1.3.0")}

    def at(version: str | None) -> None:
        monkeypatch.setenv("PYTHONPATH", former[version])

    at("1.2.3")
    return at


@pytest.fixture(scope="module")
def first(place: Path) -> Iterator[Worker]:
    """A process that has a store open whose bodies it marks; each test leaves it as it is."""
    section = {"mark": "!", "key": "secret", "words": ["a", "b"]}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", installed(place, "1.2.3"))
            worker = stack.enter_context(a_worker(place / "s", **USED, marking=section))
        assert worker.hear() == {"role": "owner"}
        yield worker


@contextmanager
def a_newcomer(path: Path, **settings: Any) -> Iterator[tuple[Worker, dict[str, Any]]]:
    with a_worker(path, **{**USED, **settings}) as worker:
        yield worker, worker.hear()


# --- plugins -----------------------------------------------------------------------------------


def test_who_lacks_a_plugin_of_the_others_is_refused(
    place: Path, install: Install, first: Worker
) -> None:
    install(None)
    with a_newcomer(place / "s", append="rocketmq") as (_, said):
        assert said["error"] == "MissingPlugin"
        assert "the append callback 'marking' of acme-marking 1.2.3" in said["text"]
        assert "pip install acme-marking==1.2.3" in said["text"]
    assert len(first.ask("put", "x", 2)["offsets"]) == 2


def test_another_version_of_a_plugin_is_refused(
    place: Path, install: Install, first: Worker
) -> None:
    install("1.3.0")
    with a_newcomer(place / "s") as (_, said):
        assert said["error"] == "PluginError"
        assert "'marking' of acme-marking 1.2.3, and here is acme-marking 1.3.0" in said["text"]
    assert len(first.ask("put", "x", 2)["offsets"]) == 2


def test_a_version_with_other_corrections_is_told(
    place: Path, install: Install, first: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    install("1.2.4")
    with a_newcomer(place / "s", marking={"key": "secret"}) as (_, said):
        assert said == {"role": "attach"}
    assert "of acme-marking 1.2.3, and here is acme-marking 1.2.4" in capfd.readouterr().err


def test_all_dispatch_and_clean_alike(tmp_path: Path) -> None:
    """The next process with the services dispatches and cleans like the first one."""
    given = {"plugins": None, "dispatchers": ["consume-queue"], "cleaner": "retention"}
    with (
        open_small(tmp_path, **given, retention={"max_segments": 5}),
        open_small(tmp_path, plugins=None) as store,
    ):
        core = store.settings.core
        assert (core.dispatchers, core.cleaner) == (("consume-queue",), "retention")
        assert store.settings.section("retention").max_segments == 5
        assert store.settings.origins["retention.max_segments"] == "the store's processes"
        assert store.settings.origins["retention.delete_when"] == "default"


# --- sections ----------------------------------------------------------------------------------


def test_a_section_that_differs_gives_way(
    place: Path, install: Install, first: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    section = {"mark": "?", "key": "secret"}
    with a_newcomer(place / "s", marking=section) as (second, said):
        assert said == {"role": "attach"}
        first.ask("put", "first", 1)
        second.ask("put", "second", 1)
        assert second.ask("store.settings.section('marking').words")["is_"] == ["a", "b"]
    logged = [line for line in capfd.readouterr().err.splitlines() if "marking" in line]
    assert len(logged) == 1
    assert "use other settings: marking.mark = '?' (theirs: '!')" in logged[0]
    with read_small(place / "s") as store:
        assert [bytes(each.body) for each in store.scan()][-2:] == [b"first 0!", b"second 0!"]


@pytest.mark.parametrize("section", [{}, {"key": "another"}])
def test_a_secret_must_be_the_same_and_stands_nowhere(
    place: Path, install: Install, first: Worker, section: dict[str, Any]
) -> None:
    assert first.process.poll() is None
    with a_newcomer(place / "s", marking=section) as (_, said):
        assert said["error"] == "SettingsError"
        assert "marking.key" in said["text"]
        assert "give all the same value" in said["text"]
        assert "another'" not in said["text"]
    assert b"secret" not in (place / "s" / "lakelog" / "shared").read_bytes()


def test_a_section_that_does_not_fit_into_the_page_must_be_the_same(tmp_path: Path) -> None:
    marking = ModuleType("marking")
    exec(PACKAGE, marking.__dict__)
    given = {"plugins": [marking], "append": "marking"}
    long = ["word" * 8] * (SETTINGS_BYTES // 32)
    with open_small(tmp_path, **given, marking={"words": long}) as first:
        with open_small(tmp_path, **given, marking={"words": long}) as store:
            store.put(lakelog.Message("t", b"second"))
            assert store.settings.section("marking").words == tuple(long)
        with pytest.raises(SettingsError, match=r"\[marking\].*shared page does not hold"):
            open_small(tmp_path, **given, marking={"words": long[1:]})
        assert [bytes(each.body) for each in first.scan()] == [b"second."]


def settings_of(path: Path, **given: Any) -> tuple[Registry, Settings]:
    registry = Registry.load(None, {})
    found = resolve(
        path,
        installed=registry.installed(path),
        arguments={"segment_size_bytes": SEGMENT, **given},
        source=None,
        broker_conf=None,
        environ={},
        cwd=path,
        tolerate_missing=False,
    )
    return registry, found


def test_every_section_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """Sections pass through JSON: lists for tuples, integers for floats, and units in names."""
    given: dict[str, Any] = {
        "cleaner": "retention",
        "disk_watcher": "psutil",
        "flush": "timed",
        "retention": {"file_reserved_hours": 1, "max_total_bytes": "2GiB", "delete_when": "03;04"},
        "psutil": {"max_used_ratio": 0.5, "warning_ratio": 1, "clean_forcibly_ratio": "85%"},
        "timed": {"flush_interval_ms": "2s"},
        "hash_index": {"slots": 50, "entries": 40},
        "maintenance": {"interval_ms": 5, "pin_expires_after_ms": "1h"},
    }
    registry, there = settings_of(tmp_path, **given)
    said = json.loads(json.dumps(shared_settings(registry, there), default=str))
    assert DIGESTS not in said
    assert set(said[SECTIONS]) == {"retention", "psutil", "timed", "hash-index", "maintenance"}
    registry, here = settings_of(tmp_path)
    made = agreed(registry, here, said, tmp_path)
    for name in said[SECTIONS]:
        assert made.section(name) == there.section(name)
        assert made.section(name) != here.section(name)


def test_what_differs_is_told_once_and_only_if_it_was_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path, plugins=None, flush="timed", timed={"flush_interval_ms": 100}):
        with caplog.at_level(logging.WARNING, "lakelog"):
            lakelog.open(tmp_path, flush="auto", segment_size_bytes=SEGMENT).close()
            assert caplog.messages == []
            given: dict[str, Any] = {"timed": {"flush_interval_ms": 200}, "queues_per_topic": 9}
            lakelog.open(tmp_path, **given).close()
        (line,) = caplog.messages
        assert "queues_per_topic = 9 (theirs: 4)" in line
        assert "timed.flush_interval_ms = 200 (theirs: 100)" in line


def test_joining_reads_no_section_that_the_processes_do_not_share(tmp_path: Path) -> None:
    """The first reading imports the plugin, while no other process can join or leave."""
    registry, there = settings_of(tmp_path)
    said = shared_settings(registry, there)
    registry, here = settings_of(tmp_path)
    agreed(registry, here, said, tmp_path)
    assert "retention" not in vars(here.sections)["_built"]
