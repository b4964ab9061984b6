"""Contract tests for the sharing of stores: several write to one, and one has its services."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.errors import SettingsError, StoreLocked
from lakelog.interfaces import StoreSharing
from lakelog.registry import check_object
from lakelog.store.log_store import LogStore

_TIMEOUT_S = 60.0


class StoreSharingContract:
    """Subclass it, and provide the plugin and a sharing that it makes.

    A store that is opened twice in a process stands for two processes: each is a member.
    """

    plugin: object
    """The plugin that offers the sharing."""

    def make(self) -> StoreSharing:
        """Create the sharing."""
        raise NotImplementedError

    def open(self, path: Path, **arguments: Any) -> LogStore:
        """Open a store with the sharing; small, and without other plugins."""
        given = {"segment_size_bytes": "64KiB", **arguments}
        return lakelog.open(path, plugins=[self.plugin], **given)

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), StoreSharing) is None

    def test_both_append_to_one_log(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as first, self.open(tmp_path) as second:
            assert (first.role, second.role) == ("owner", "attach")
            for each in range(20):
                (first, second)[each % 2].put(lakelog.Message("t", b"%d" % each, queue_id=0))
            assert [each.queue_offset for each in first.scan()] == list(range(20))
            assert [each.body for each in second.scan()] == [b"%d" % each for each in range(20)]

    def test_the_services_go_to_the_one_that_stays(self, tmp_path: Path) -> None:
        first = self.open(tmp_path)
        with self.open(tmp_path) as second:
            first.put(lakelog.Message("t", b"x", queue_id=0))
            first.close()
            assert second.put(lakelog.Message("t", b"y", queue_id=0)).queue_offset == 1
            _wait_for(lambda: second.role == "owner")
        assert not (tmp_path / "abort").exists()

    def test_the_services_stay_where_they_are_not_wanted(self, tmp_path: Path) -> None:
        with self.open(tmp_path, attach={"take_over": False}) as second:
            assert second.role == "owner"  # it was first
            with self.open(tmp_path, attach={"take_over": False}) as third:
                assert third.role == "attach"

    def test_a_request_is_executed_by_the_one_with_the_services(self, tmp_path: Path) -> None:
        with self.open(tmp_path), self.open(tmp_path) as second:
            assert second.role == "attach"
            second.resume_dispatch()

    def test_settings_of_another_log_are_refused(self, tmp_path: Path) -> None:
        with self.open(tmp_path):
            with pytest.raises(SettingsError, match="segment_size_bytes"):
                self.open(tmp_path, segment_size_bytes="128KiB")
            self.open(tmp_path).close()  # nothing is left of the one that was refused

    def test_one_that_is_exclusive_admits_no_other(self, tmp_path: Path) -> None:
        with self.open(tmp_path, mode="exclusive"), pytest.raises(StoreLocked, match="exclusive"):
            self.open(tmp_path)


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "the condition has not become true"
        time.sleep(0.01)
