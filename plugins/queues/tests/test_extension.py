"""The plugin ``queues``: a store has its methods with it, and lacks them without."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from lakelog.errors import PluginError
from lakelog.hooks import Factory, Kind, NoSettings, StoreExtension
from lakelog.hooks.hookspecs import hookimpl
from lakelog.store.log_store import _OF_QUEUES
from lakelog_queues import plugin
from lakelog_queues.store import QueueExtension, Store
from lakelog_testing import PluginContract, StoreExtensionContract


class TestPlugin(PluginContract):
    plugin = plugin


class TestExtension(StoreExtensionContract):
    plugin = plugin

    def make(self) -> StoreExtension:
        return QueueExtension()


def test_switched_off_a_store_has_its_log_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_DISABLE_PLUGINS", "queues")
    with lakelog.open(tmp_path) as store:
        assert not isinstance(store, lakelog.Store)
        store.put(lakelog.Message("t", b"x"))
        assert [each.body for each in store.scan()] == [b"x"]
        with pytest.raises(AttributeError, match="pip install lakelog-queues"):
            store.get("t", 0, 0)
        with pytest.raises(AttributeError, match="no attribute 'gte'"):
            store.gte  # noqa: B018  # it raises


def test_every_queue_method_is_explained_without_it() -> None:
    added = {name for name in vars(Store) if not name.startswith("_")}
    assert added - {"close"} == set(_OF_QUEUES)


def test_messages_put_without_it_are_in_their_queues_once_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_DISABLE_PLUGINS", "queues")
    with lakelog.open(tmp_path) as store:
        offsets = [store.put(lakelog.Message("t", b"x", queue_id=0)).queue_offset for _ in "ab"]
    with lakelog.open(tmp_path) as store:
        offsets.append(store.put(lakelog.Message("t", b"x", queue_id=0)).queue_offset)
    assert offsets == [0, 1, 2]
    monkeypatch.delenv("LAKELOG_DISABLE_PLUGINS")
    with lakelog.open(tmp_path) as store:
        assert store.wait_dispatched()
        found = store.get("t", 0, 0).messages
        assert [each.queue_offset for each in found] == offsets


class Another:
    @hookimpl
    def lakelog_store_extensions(self) -> list[Factory]:
        def make(*_: object) -> StoreExtension:
            return QueueExtension()

        return [Factory(Kind.STORE_EXTENSION, "another", NoSettings, make)]


def test_two_extensions_are_refused_before_any_file_is_touched(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="another, queues"):
        lakelog.open(tmp_path / "store", plugins=[Another()])
    assert not (tmp_path / "store").exists()
