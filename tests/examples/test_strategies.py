"""The strategies of the examples pass the contract kits of their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import attrs
import pytest
from cryptography.exceptions import InvalidTag

import lakelog
from examples.dispatch_into_sqlite import SqliteDispatcher
from examples.encrypt_bodies import Encrypting, EncryptSettings
from examples.own_cleaner import QuotaCleaner, QuotaWatcher
from examples.own_follower import Webhook, WebhookSettings
from examples.own_replicator import FolderCopy
from examples.own_segment_source import ZippedSegments
from examples.own_writer import TimedWriter
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import segment_name
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record_batch import decode_run
from lakelog.hooks import (
    AppendCallback,
    Cleaner,
    DiskWatcher,
    Dispatcher,
    Follower,
    SegmentSource,
    Writer,
)
from lakelog.message import Message
from lakelog.results import PutStatus
from lakelog_testing import (
    AppendCallbackContract,
    CleanerContract,
    DiskWatcherContract,
    DispatcherContract,
    FakeReplicatedLog,
    FollowerContract,
    ReplicatorContract,
    SegmentSourceContract,
    WriterContract,
    context_of,
)
from lakelog_testing.threads import running


class TestSqliteDispatcher(DispatcherContract):
    """Rows can be built again from the log, at any time and from any point."""

    def make(self, path: Path) -> Dispatcher:
        return SqliteDispatcher(path, read_only=False)

    def contents(self, dispatcher: Dispatcher) -> object:
        assert isinstance(dispatcher, SqliteDispatcher)
        return dispatcher.rows()


class TestQuotaCleaner(CleanerContract):
    """Decisions depend on the arguments alone, and respect pins."""

    def make(self) -> Cleaner:
        return QuotaCleaner(most_bytes=10 << 20)


class TestQuotaWatcher(DiskWatcherContract):
    """It measures, and changes nothing."""

    def make(self) -> DiskWatcher:
        return QuotaWatcher(most_bytes=1 << 40)


class TestEncrypting(AppendCallbackContract):
    """Bodies come back, and messages of others stay as they are."""

    def make(self) -> AppendCallback:
        return Encrypting(EncryptSettings(keys=(f"first:{'00' * 32}",)), context_of(Path("store")))

    def test_what_is_stored_says_nothing_of_the_body(self) -> None:
        callback = self.make()
        given = [Message("t", b"secret" * 9), Message("t", b"secret" * 9, properties=b"a\x01b")]
        batch = callback.encode(given)
        callback.place(batch, 0, 1 << 20, QueueOffsets(), 0)
        stored = decode_run(bytes(batch.buffer), 0)
        assert b"secret" not in bytes(batch.buffer)
        assert bytes(stored.bodies[0])[12:] != bytes(stored.bodies[1])[12:]
        assert stored.properties[1] == {"a": "b", "BODY_KEY": "first"}

    def test_a_body_belongs_to_its_topic(self) -> None:
        callback = self.make()
        batch = callback.encode([Message("t", b"secret")])
        callback.place(batch, 0, 1 << 20, QueueOffsets(), 0)
        stored = decode_run(bytes(batch.buffer), 0).message(0)
        assert isinstance(callback, Encrypting)
        assert callback.decode([stored])[0].body == b"secret"
        with pytest.raises(InvalidTag):
            callback.decode([attrs.evolve(stored, topic="u")])


class TestTimedWriter(WriterContract):
    """Writes with pwrite, reads through a map."""

    def make(self) -> Writer:
        return TimedWriter(slow_ms=60_000)


class TestFolderCopy(ReplicatorContract):
    """Copies what is durable, and lets puts wait for that."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "copy"

    def make(self) -> FolderCopy:
        return FolderCopy(self.folder, 0.05, RealFileSystem())

    def test_the_copy_is_the_log_and_goes_on_where_it_ended(self, log: FakeReplicatedLog) -> None:
        for _ in range(2):
            replicator = attrs.evolve(self.make(), timeout_s=self.patience_seconds)
            replicator.lead()
            with running(replicator, log):
                for _ in range(3):
                    assert replicator.submit(log.append(50_000), wait=True) is PutStatus.PUT_OK
        files = sorted((self.folder / "commitlog").iterdir())
        copied = b"".join(each.read_bytes() for each in files)
        assert copied[: len(log.bytes)] == bytes(log.bytes)
        assert int((self.folder / "copied").read_text()) == len(log.bytes)


class TestZippedSegments(SegmentSourceContract):
    """Gives back any range of a segment in the zip file."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.file = tmp_path / "old.zip"

    def make(self, segments: Mapping[int, bytes]) -> SegmentSource:
        with ZipFile(self.file, "w") as zipped:
            for start, content in segments.items():
                zipped.writestr(segment_name(start), content)
        return ZippedSegments(self.file)


class TestWebhook(FollowerContract):
    """Starts, and stops at once."""

    @pytest.fixture(autouse=True)
    def _store(self, tmp_path: Path) -> None:
        self.store = tmp_path / "store"
        lakelog.open(self.store, segment_size_bytes="1MiB").close()

    def make(self) -> Follower:
        return Webhook(self.store, WebhookSettings())

    def test_it_says_why_it_cannot_go_on(self) -> None:
        follower = Webhook(self.store / "missing" / "none", WebhookSettings())
        (self.store / "missing").write_text("in the way")
        follower.start()
        follower.stop()
        with pytest.raises(lakelog.LakelogError):
            follower.is_well()
