"""A disk that is too full stops puts in every process, for as long as somebody watches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.store.support import NEVER, open_small
from core.tests.store.workers import SERVE, a_worker
from lakelog import Message, PutRefused
from lakelog.interfaces import DiskState
from plugins.retention.tests.maintenance.support import House

WATCHED = {"disk_watcher": "mine-too", "cleaner": None}
FULL = "0.91 of /data is used"


def test_puts_of_all_processes_see_a_full_disk(tmp_path: Path) -> None:
    house = House()
    with house.open(tmp_path, **WATCHED) as store, a_worker(tmp_path, "write", **NEVER) as other:
        assert other.hear() == {"role": "attach"}
        assert other.ask("put", "a", 1)["offsets"] == [0]
        for _ in range(2):
            house.watcher.state, house.watcher.reason = DiskState.STOP_WRITING, FULL
            store.disk()
            with pytest.raises(PutRefused, match=f"too full .*{FULL}") as caught:
                store.put(Message("t", b"here"))
            assert other.ask("put", "b", 1) == {"error": "PutRefused", "text": str(caught.value)}
            later = "store.put_async(lakelog.Message('t', b'later')).result(10)"
            assert other.ask(later) == {"error": "PutRefused", "text": str(caught.value)}
            assert other.ask("store.is_writable") == {"is_": False}
            with a_worker(tmp_path, "write", **NEVER) as newcomer:
                newcomer.hear()
                assert newcomer.ask("put", "c", 1)["text"] == str(caught.value)
            house.watcher.state = DiskState.OK
            store.disk()
            assert other.ask("store.is_writable") == {"is_": True}
            assert len(other.ask("put", "d", 1)["offsets"]) == 1
        assert len(list(store.scan())) == 3


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_pause_ends_with_the_process_that_said_it(tmp_path: Path, ended: str) -> None:
    """Nobody watches the disk, or another process without a watcher: its word is out of date."""
    with a_worker(tmp_path, SERVE) as owner:
        owner.hear()
        with open_small(tmp_path, **NEVER) as store:
            owner.ask(f"store._current.parts.owned.page.tell_pause({FULL!r})")
            with pytest.raises(PutRefused, match=FULL):
                store.put(Message("t", b"refused"))
            owner.kill() if ended == "killed" else owner.ask("close")
            store.put(Message("t", b"taken", queue_id=0))
            with a_worker(tmp_path, SERVE) as next_one:
                assert next_one.hear() == {"role": "owner"}
                assert store.put(Message("t", b"taken", queue_id=0)).queue_offset == 1
                assert store.is_writable
