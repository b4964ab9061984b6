"""Contract tests for accelerators: every result is that of the Python code, the specification."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.accelerate import SEAM, Accelerator, current, use
from lakelog.codec import RocketmqAppendCallback, decode, decode_run
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.message import Message, StoredMessage
from lakelog.registry import check_object
from lakelog.settings.model import StoreSettings
from lakelog_testing.records import STORED_AT_MS, encode_log

_ROOM_BYTES = 1 << 20
_NONE = "none"
_MESSAGES = [
    Message("orders", b"x" * at, tags=f"t{at % 3}", keys=f"k{at}", queue_id=0, born_timestamp_ms=at)
    for at in range(200)
]


class AcceleratorContract:
    """Subclass it, and provide the plugin, and the name and the making of its accelerator."""

    plugin: object
    """The plugin that offers the accelerator."""

    name: str
    """Its name in the settings."""

    def make(self) -> Accelerator:
        """Create the accelerator."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _alone(self) -> Iterator[None]:
        """Restore the accelerator of this process, which an open changes."""
        before = current()
        yield
        use(before)

    def contents(self, path: Path, accelerator: str) -> list[StoredMessage]:
        """Read a whole store with this accelerator, or with ``none``."""
        use(None)
        plugins = [self.plugin]
        with lakelog.open(path, mode="read", plugins=plugins, accelerator=accelerator) as store:
            return list(store.scan())

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Accelerator) is None

    def test_it_has_the_version_of_the_interface(self) -> None:
        assert self.make().seam == SEAM

    def test_another_process_gets_its_own(self) -> None:
        made = self.make()
        assert type(pickle.loads(pickle.dumps(made))) is type(made)

    @pytest.mark.parametrize("count", [1, 2, 200])
    def test_it_encodes_the_same_bytes(self, count: int) -> None:
        found = []
        for accelerator in (None, self.make()):
            callback = RocketmqAppendCallback.of(StoreSettings(), accelerator)
            batch = callback.encode(_MESSAGES[-count:])
            callback.place(batch, 0, _ROOM_BYTES, QueueOffsets(), STORED_AT_MS)
            found.append(bytes(batch.buffer))
        assert found[0] == found[1]

    def test_it_decodes_the_same_messages(self) -> None:
        log, found = encode_log(_MESSAGES), []
        for accelerator in (None, self.make()):
            use(accelerator)
            batch = decode_run(log, 0)
            places = batch.physical_offsets.tolist()
            found.append([*batch.decoded, *(decode(log, at, offset=at) for at in places)])
        assert found[0] == found[1]
        assert len(found[0]) == 2 * len(_MESSAGES)

    @pytest.mark.parametrize("is_written_by_it", [True, False])
    def test_a_store_is_the_same_with_and_without_it(
        self, tmp_path: Path, is_written_by_it: bool
    ) -> None:
        use(None)
        given: dict[str, Any] = {"plugins": [self.plugin], "segment_size_bytes": "1MiB"}
        accelerator = self.name if is_written_by_it else _NONE
        with lakelog.open(tmp_path, accelerator=accelerator, **given) as store:
            for each in _MESSAGES:
                store.put(each)
            store.put_batch(_MESSAGES)
        found = [self.contents(tmp_path, each) for each in (self.name, _NONE)]
        assert found[0] == found[1]
        assert [each.body for each in found[0]] == [each.body for each in _MESSAGES] * 2
