"""Contract tests for store extensions: they add methods, and change nothing of the log's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lakelog
from lakelog.interfaces import Extended, StoreExtension
from lakelog.registry import check_object
from lakelog.store.log_store import LogStore

_ROLES = ("write", "exclusive", "read")


class StoreExtensionContract:
    """Subclass it, and provide the plugin and an extension that it makes."""

    plugin: object
    """The plugin that offers the extension."""

    def make(self) -> StoreExtension:
        """Create the extension."""
        raise NotImplementedError

    def open(self, path: Path, **arguments: Any) -> LogStore:
        """Open a store with the extension; small, and without other plugins."""
        return lakelog.open(path, plugins=[self.plugin], segment_size_bytes="1MiB", **arguments)

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), StoreExtension) is None

    def test_the_class_of_stores_has_all_methods_of_the_log(self) -> None:
        assert issubclass(self.make().store_class, LogStore)

    def test_each_role_has_resources_that_can_be_closed(self, tmp_path: Path) -> None:
        self.open(tmp_path).close()
        for mode in _ROLES:
            with self.open(tmp_path, mode=mode) as store:
                assert type(store) is self.make().store_class
                made = store._current.now().extension
                assert check_object(made, Extended) is None

    def test_the_log_is_written_and_read_as_without_it(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            results = [store.put(lakelog.Message("t", b"%d" % each)) for each in range(10)]
            assert [each.physical_offset for each in store.scan()] == [
                each.physical_offset for each in results
            ]
        with self.open(tmp_path, mode="read") as reader:
            assert [each.body for each in reader.scan()] == [b"%d" % each for each in range(10)]

    def test_a_reader_changes_no_file(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.put(lakelog.Message("t", b"x"))
        before = _files(tmp_path)
        with self.open(tmp_path, mode="read") as reader:
            assert len(list(reader.scan())) == 1
        assert _files(tmp_path) == before

    def test_a_closed_store_can_be_closed_again(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        store.close()
        store.close()


def _files(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
