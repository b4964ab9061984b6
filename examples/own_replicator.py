"""How is the log copied elsewhere, so that a put waits for the copy? Here into another folder.

The copy has the same segments, and opens as a store. Of all processes that put, only the one with
the services copies (``lead``); all wait for the position that it publishes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import attrs

import lakelog
from lakelog.errors import LakelogError, StoreError
from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog.format.layout import segment_name
from lakelog.hooks import Context, Factory, Kind, Outcome, ReplicatedLog
from lakelog.hooks.hookspecs import hookimpl
from lakelog.runtime.threads import started

PIECE_BYTES = 1 << 20
NEVER = 1 << 62


@attrs.frozen
class FolderCopySettings:
    """Section ``[folder-copy]``; ``timeout_ms`` is how long a put waits for the copy."""

    folder: str
    timeout_ms: int = 3000


@attrs.define(eq=False)
class FolderCopy:
    """Copies the durable part of the log, in a thread of the process that leads."""

    folder: Path
    timeout_s: float
    files: FileSystem
    log: ReplicatedLog | None = None
    leads: bool = False
    thread: Thread | None = None
    stopped: Event = attrs.field(factory=Event)

    def lead(self) -> None:
        """Start to copy; raises ``StoreError``, at an open before any file of the log changes."""
        try:
            self.files.make_dir(self.folder / "commitlog")
        except OSError as error:
            raise StoreError(f"no copy can be made: {error.strerror}", path=self.folder) from error
        self.leads = True
        self._begin()

    def start(self, log: ReplicatedLog) -> None:
        """Store the log; start to copy it if this process leads."""
        self.log = log
        self._begin()

    def _begin(self) -> None:
        if self.leads and self.log is not None and self.thread is None:
            self.stopped.clear()
            thread = Thread(target=self._run, args=(self.log,), name="folder-copy", daemon=True)
            self.thread = started(thread)

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Wait until the copy has the bytes; the message is in the log with any result."""
        if not wait or self.log is None:
            return lakelog.PutStatus.PUT_OK
        if not self.log.waits_for_disk:
            self.log.sync()  # only durable bytes are copied, and no flush strategy waits for them
        is_copied = self.log.copies.wait(end_offset, self.timeout_s)
        return lakelog.PutStatus.PUT_OK if is_copied else lakelog.PutStatus.FLUSH_SLAVE_TIMEOUT

    def stop_leading(self) -> None:
        """Copy up to the present durable end, then stop."""
        self.leads = False
        self.stopped.set()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def close(self) -> None:
        """Do the same; the flush strategy was closed before, so all bytes are durable."""
        self.stop_leading()

    def _run(self, log: ReplicatedLog) -> None:
        is_last_turn = False
        while not is_last_turn:
            is_last_turn = self.stopped.is_set()
            copied = self._known(log)
            try:
                while copied < log.flushed:
                    copied = self._copy(log, copied)
                    log.copies.publish(copied)
            except (OSError, LakelogError) as error:
                print(f"the copy ends at {copied} for now: {error}", file=sys.stderr)
                log.copies.publish(-1)
                self.stopped.wait(1)
            log.wait_moved(copied, NEVER, 0.05)

    def _known(self, log: ReplicatedLog) -> int:
        """Return the end of the copy; the start of the log if there is no copy."""
        noted = read_file(self.files, self.folder / "copied")
        return log.minimum if noted is None else int(noted)

    def _copy(self, log: ReplicatedLog, offset: int) -> int:
        """Copy a piece of one segment, durably; returns its end offset."""
        size = log.segment_size_bytes
        start = offset - offset % size
        end = min(log.flushed, start + size, offset + PIECE_BYTES)
        path = self.folder / "commitlog" / segment_name(start)
        source, target = log.open_segment(start), self.files.open(path, write=True, create=True)
        try:
            target.truncate(size)  # a segment has its full length, with zeros behind the records
            target.write_at(offset - start, source.read_at(offset - start, end - offset))
            target.sync()
        finally:
            source.close()
            target.close()
        self.files.sync_dir(path.parent)
        write_file(self.files, self.folder / "copied", b"%d" % end)
        return end


def make(settings: FolderCopySettings, context: Context) -> FolderCopy:
    """Make the replicator when a store opens."""
    return FolderCopy(Path(settings.folder), settings.timeout_ms / 1000, context.files)


@hookimpl
def lakelog_replicators() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.REPLICATOR, "folder-copy", FolderCopySettings, make)]


def main(folder: str) -> None:
    """Put messages, each of which is copied before its put returns; then open the copy."""
    with lakelog.open(
        f"{folder}/store",
        plugins=[sys.modules[__name__]],
        replicator="folder-copy",
        folder_copy={"folder": f"{folder}/copy"},
        segment_size_bytes="64KiB",
    ) as store:
        orders = (b"order %d" % number * 50 for number in range(200))
        puts = [store.put(lakelog.Message("orders", each, queue_id=0)) for each in orders]
        print("the puts:", *{each.status.name for each in puts})
        with lakelog.open(f"{folder}/copy", mode="read", segment_size_bytes="64KiB") as copy:
            print("the copy has", sum(1 for _ in copy.scan()), "messages")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
