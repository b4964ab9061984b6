"""How is a custom flush strategy used without a package?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence

import attrs

import lakelog
from lakelog.hooks import Context, Factory, Flushable, Kind, Outcome
from lakelog.hooks.hookspecs import hookimpl


@attrs.frozen
class EveryBytesSettings:
    """Section ``[every-bytes]``; ``unsynced`` is the number of bytes that a power cut may lose."""

    unsynced: int = 64 << 10


@attrs.define
class EveryBytes:
    """Syncs when enough bytes are unsynced."""

    unsynced: int
    log: Flushable | None = None

    def start(self, log: Flushable) -> None:
        """Store the log."""
        self.log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Sync in the thread of the put if enough bytes are unsynced."""
        if self.log and wait and end_offset - self.log.flushed >= self.unsynced:
            self.log.sync()
        return lakelog.PutStatus.PUT_OK

    def close(self) -> None:
        """Sync the rest."""
        if self.log:
            self.log.sync()


def make(settings: EveryBytesSettings, context: Context) -> EveryBytes:
    """Make the strategy when a store opens."""
    print("made for the store in", context.path.name)
    return EveryBytes(settings.unsynced)


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer the strategy; this module is the plugin."""
    return [Factory(Kind.FLUSH_STRATEGY, "every-bytes", EveryBytesSettings, make)]


def main(folder: str) -> None:
    """Use it in a store."""
    with lakelog.open(
        folder,
        plugins=[sys.modules[__name__]],
        flush="every-bytes",
        every_bytes={"unsynced": 4096},
        segment_size_bytes="1MiB",
    ) as store:
        for number in range(100):
            store.put(lakelog.Message("orders", b"x" * 100))
            if number % 20 == 19:
                print(f"appended {store.max_offset:6}, durable {store.flushed_offset:6}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
