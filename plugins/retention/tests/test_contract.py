"""Cleaners, watcher and plugin fulfil the contracts of their kinds; a store without them."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from core.tests.store.support import open_small
from lakelog.errors import MissingPlugin, PluginError, SettingsError
from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Cleaner, DiskWatcher, Factory, Kind, NoSettings, StoreMaintenance
from lakelog_retention import plugin
from lakelog_retention.cleaner import Retention
from lakelog_retention.forever import KeepForever
from lakelog_retention.maintenance.wiring import SpaceMaintenance
from lakelog_retention.measure import Measure
from lakelog_retention.settings import MaintenanceSettings, RetentionSettings, WatcherSettings
from lakelog_retention.watcher import PsutilWatcher
from lakelog_testing import (
    CleanerContract,
    DiskWatcherContract,
    PluginContract,
    StoreMaintenanceContract,
)
from plugins.retention.tests.maintenance.support import MaintenancePlugin


class TestWithLimits(CleanerContract):
    def make(self) -> Cleaner:
        return Retention(RetentionSettings(max_segments=9, max_total_bytes=5 << 20))


class TestKeepForever(CleanerContract):
    def make(self) -> Cleaner:
        return KeepForever()


class TestWatcher(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        return PsutilWatcher(WatcherSettings())


class TestWatcherThatWantsMore(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        return PsutilWatcher(WatcherSettings(min_free_bytes=1 << 60))


class TestWatcherOfAFullDisk(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        def full(_: Path) -> Measure:
            return Measure(1, 1000, 0, 0)

        return PsutilWatcher(WatcherSettings(), full)


class TestPlugin(PluginContract):
    plugin = plugin


OFF = r"'maintenance' is installed: the plugin 'retention' is switched off"


class TestMaintenance(StoreMaintenanceContract):
    plugin = plugin

    def make(self) -> StoreMaintenance:
        return SpaceMaintenance(MaintenanceSettings())


@pytest.fixture
def _off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_DISABLE_PLUGINS", "retention")


@pytest.mark.usefixtures("_off")
def test_switched_off_a_store_works_and_deletes_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, open_small(tmp_path) as other:
        store.put(lakelog.Message("t", b"x", queue_id=0))
        for each in (store, other):
            assert each.disk() is None
            with pytest.raises(SettingsError, match="no cleaner is set"):
                each.delete_expired()
            with pytest.raises(MissingPlugin, match=OFF):
                each.delete_unused_topics()


@pytest.mark.usefixtures("_off")
@pytest.mark.parametrize("chosen", [{"cleaner": "mine"}, {"disk_watcher": "mine-too"}])
def test_switched_off_a_cleaner_or_a_watcher_is_an_error_before_any_file_is_touched(
    tmp_path: Path, chosen: dict[str, str]
) -> None:
    with pytest.raises(MissingPlugin, match=OFF):
        open_small(tmp_path / "store", plugins=[MaintenancePlugin()], **chosen)
    assert not (tmp_path / "store").exists()


def test_a_reader_without_it_reads_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"plugins": [MaintenancePlugin()], "cleaner": "mine", "disk_watcher": "mine-too"}
    with open_small(tmp_path, **chosen) as store:
        store.put(lakelog.Message("t", b"x"))
    monkeypatch.setenv("LAKELOG_DISABLE_PLUGINS", "retention")
    with open_small(tmp_path, mode="read", **chosen) as reader:
        assert len(list(reader.scan())) == 1
        with pytest.raises(MissingPlugin, match=OFF):
            reader.delete_expired(dry_run=True)
        with pytest.raises(MissingPlugin, match=OFF):
            reader.disk()


class Another:
    @hookimpl
    def lakelog_store_maintenance(self) -> list[Factory]:
        def make(*_: object) -> StoreMaintenance:
            return SpaceMaintenance(MaintenanceSettings())

        return [Factory(Kind.STORE_MAINTENANCE, "another", NoSettings, make)]


def test_two_are_refused_before_any_file_is_touched(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="another, maintenance"):
        lakelog.open(tmp_path / "store", plugins=[Another()])
    assert not (tmp_path / "store").exists()


def test_the_class_of_its_settings_is_there_by_its_former_name_with_a_warning() -> None:
    import lakelog.settings.model

    with pytest.warns(DeprecationWarning, match="is lakelog_retention"):
        assert lakelog.settings.model.MaintenanceSettings is MaintenanceSettings
    with pytest.raises(AttributeError):
        lakelog.settings.model.Nothing  # noqa: B018  # the access raises
