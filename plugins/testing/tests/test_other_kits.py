"""The other kits accept correct strategies, and find mistakes."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from lakelog.errors import SettingsError
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import (
    CleaningContext,
    Deletion,
    DeletionRate,
    DiskReport,
    DiskState,
    DiskUsage,
    Dispatcher,
    SegmentInfo,
    TranslatedValue,
    Translation,
)
from lakelog_testing import (
    CleanerContract,
    DiskWatcherContract,
    DispatcherContract,
    FollowerContract,
    SettingsFormatContract,
)
from lakelog_testing.contracts.housekeeping import NOW_MS
from lakelog_testing.samples import messages, record_batch


class Bodies:
    """Stores bodies by their place in the log."""

    directories: Sequence[str] = ("bodies",)

    def __init__(self, path: Path) -> None:
        self.path = path / "bodies" / "bodies.json"
        self.kept: dict[int, str] = {}
        if self.path.exists():
            read = json.loads(self.path.read_text())
            self.kept = {int(at): body for at, body in read.items()}

    def resume(self, minimum: int, end: int) -> int:
        self.truncate(end)
        return minimum if not self.kept else max(minimum, *self.kept)

    def dispatch(self, batch: RecordBatch) -> None:
        bodies = [bytes(body).decode() for body in batch.bodies]
        self.kept.update(zip(batch.physical_offsets.tolist(), bodies, strict=True))

    def truncate(self, end_offset: int) -> None:
        self.kept = {at: body for at, body in self.kept.items() if at < end_offset}

    def flush(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.kept))

    def close(self) -> None:
        self.flush()


class TestBodies(DispatcherContract):
    def make(self, path: Path) -> Bodies:
        return Bodies(path)

    def contents(self, dispatcher: Dispatcher) -> object:
        assert isinstance(dispatcher, Bodies)
        return dict(dispatcher.kept)


class Counting(Bodies):
    """Counts a repeated run twice."""

    def dispatch(self, batch: RecordBatch) -> None:
        for body in batch.bodies:
            self.kept[len(self.kept)] = bytes(body).decode()


class Forgetful(Bodies):
    """Assumes at the next open that nothing is missing."""

    def resume(self, minimum: int, end: int) -> int:
        super().resume(minimum, end)
        return end


class Littering(Bodies):
    """Writes outside of its folder."""

    def close(self) -> None:
        super().close()
        (self.path.parent.parent / "litter").touch()


@pytest.mark.parametrize(
    ("made", "test", "more"),
    [
        (Counting, "test_a_run_may_come_again", ()),
        (Forgetful, "test_what_is_missing_is_asked_for", (20,)),
        (Littering, "test_it_writes_into_its_own_folders_only", ()),
    ],
)
def test_each_mistake_of_a_dispatcher_is_found(
    tmp_path: Path, made: type[Bodies], test: str, more: tuple[int, ...]
) -> None:
    kit = type("Kit", (TestBodies,), {"make": lambda _, path: made(path)})()
    with pytest.raises(AssertionError):
        getattr(kit, test)(tmp_path, record_batch(messages(40)), *more)


@pytest.mark.parametrize("folder", ["commitlog", "config", "../precious", ""])
def test_a_folder_that_is_not_its_own_is_found(tmp_path: Path, folder: str) -> None:
    made = type("Naming", (Bodies,), {"directories": (folder,)})
    kit = type("Kit", (TestBodies,), {"make": lambda _, path: made(path)})()
    with pytest.raises(AssertionError, match="one plain name"):
        kit.test_it_has_the_methods_of_its_kind(tmp_path)


class Old:
    """Deletes all but the newest ten segments."""

    pace = DeletionRate()
    remove_empty_queues = False

    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        return [Deletion(segment.start_offset, "old") for segment in segments[:-10]]


class TestOld(CleanerContract):
    def make(self) -> Old:
        return Old()


class Leaving(Old):
    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        return super().choose(segments, situation)[1:]


class Always:
    def observe(self, paths: Sequence[Path]) -> DiskReport:
        disks = tuple(DiskUsage(path, 100, 20, 0.8) for path in paths)
        return DiskReport(DiskState.CLEAN, disks, "0.8 of the disk is used")


class TestAlways(DiskWatcherContract):
    def make(self) -> Always:
        return Always()


class Idle:
    def start(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.over.wait)
        self.thread.start()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


class TestIdle(FollowerContract):
    def make(self) -> Idle:
        return Idle()


class Deaf(Idle):
    def stop(self) -> None:
        threading.Timer(2, self.over.set).start()


class Pairs:
    """Reads ``queues NUMBER``."""

    suffixes: ClassVar[tuple[str, ...]] = (".pairs",)

    def read(self, data: bytes, origin: str) -> Translation:
        pairs = (line.partition(b" ") for line in data.splitlines())
        counts = [self.count(text, origin) for key, _, text in pairs if key == b"queues"]
        return Translation(
            tuple(TranslatedValue("queues_per_topic", count, ("queues",)) for count in counts)
        )

    def count(self, text: bytes, origin: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise SettingsError("no number", key="queues", source=origin) from error

    def translate_key(self, key: str) -> str | None:
        return "queues_per_topic" if key == "queues" else None


class TestPairs(SettingsFormatContract):
    sample = b"queues 4\n"
    wrong = b"queues many\n"

    def make(self) -> Pairs:
        return Pairs()


class Silent(Pairs):
    def count(self, text: bytes, origin: str) -> int:
        return int(text) if text.isdigit() else 0


class LikeToml(Pairs):
    suffixes = (".pairs", ".toml")


class Raw(Pairs):
    def count(self, text: bytes, origin: str) -> int:
        return int(text)


@pytest.mark.parametrize(
    ("base", "made", "test", "arguments"),
    [
        (
            *(CleanerContract, Leaving, "it_goes_from_the_first_on_and_leaves_no_gap"),
            [CleaningContext(NOW_MS)],
        ),
        (FollowerContract, Deaf, "stop_returns_when_stopped", []),
        (TestPairs, LikeToml, "it_names_its_files_and_leaves_toml_alone", []),
        (TestPairs, Silent, "a_value_that_cannot_be_understood_is_blamed_on_key_and_file", []),
        (TestPairs, Raw, "a_value_that_cannot_be_understood_is_blamed_on_key_and_file", []),
    ],
)
def test_each_mistake_is_found(base: type, made: type, test: str, arguments: list[object]) -> None:
    kit = type("Kit", (base,), {"make": lambda _: made(), "patience_seconds": 0.3})()
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        getattr(kit, f"test_{test}")(*arguments)
