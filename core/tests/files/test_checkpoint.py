"""The writer of the checkpoint: its file and folder are durable, and later writes are cheap."""

from __future__ import annotations

from pathlib import Path

from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import CHECKPOINT_BYTES, CHECKPOINT_FILE


class CountedFolders(RealFileSystem):
    """Counts the syncs of folders."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = list[Path]()

    def sync_dir(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_dir(path)


def test_only_the_write_that_makes_the_file_syncs_its_folder(tmp_path: Path) -> None:
    files = CountedFolders()
    keeper = CheckpointKeeper(files, tmp_path)
    for number in range(1, 4):
        keeper.advance(StoreCheckpoint(confirm_offset=number))
        assert files.synced == [tmp_path]
    (tmp_path / CHECKPOINT_FILE).unlink()
    keeper.advance(StoreCheckpoint(confirm_offset=4))
    assert files.synced == [tmp_path] * 2
    assert read_checkpoint(files, tmp_path).confirm_offset == 4
    assert (tmp_path / CHECKPOINT_FILE).stat().st_size == CHECKPOINT_BYTES


def test_a_keeper_syncs_the_folder_of_a_file_that_another_one_made(tmp_path: Path) -> None:
    CheckpointKeeper(RealFileSystem(), tmp_path).advance(StoreCheckpoint(confirm_offset=1))
    files = CountedFolders()
    CheckpointKeeper(files, tmp_path).advance(StoreCheckpoint(confirm_offset=2))
    assert files.synced == [tmp_path]


def test_no_number_ever_decreases(tmp_path: Path) -> None:
    """Also if only one of them is raised; RocketMQ may have written the others."""
    files = RealFileSystem()
    keeper = CheckpointKeeper(files, tmp_path)
    keeper.advance(StoreCheckpoint(10, 20, 30, 40, 50))
    keeper.advance(StoreCheckpoint(index_timestamp_ms=5, confirm_offset=60))
    assert read_checkpoint(files, tmp_path) == StoreCheckpoint(10, 20, 30, 40, 60)
