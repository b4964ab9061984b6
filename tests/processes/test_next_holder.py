"""Who had the services dies: the next one has them, and queues and index end complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lakelog
from tests.processes.member import wait_until
from tests.processes.remote import remote
from tests.processes.test_killed import verified

SMALL: Final[dict[str, Any]] = {"flush": "none", "segment_size_bytes": 1 << 16}


def test_the_last_keys_are_indexed_again_though_nothing_is_put(tmp_path: Path) -> None:
    """They are taken out first: a kill may have left them in part."""
    path = tmp_path / "store"
    with remote(path) as holder:
        holder.call("open", SMALL)
        holder.call("put_batch", ["p-1", "p-2", "p-3"])
        assert holder.call("is_dispatched")
        with lakelog.open(path, **SMALL) as store:
            assert store.role == "attach"
            holder.kill()
            wait_until(lambda: store.role == "owner", "nobody has the services")
            end = store.dispatched_offset
            assert end == store.max_offset
            assert len(list(store.query("shared", "p-3"))) == 1
    verified(path)
