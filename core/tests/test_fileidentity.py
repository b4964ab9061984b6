"""What tells a file that nobody has written to since it was stamped."""

from __future__ import annotations

import shutil
from pathlib import Path

from lakelog.files.file_identity import identity_at
from lakelog.files.filesystem import RealFileSystem


def test_a_write_in_the_same_tick_of_the_clock_is_noticed(tmp_path: Path) -> None:
    """The kernel's time of change is the same for writes that follow at once."""
    path = tmp_path / "file"
    for _ in range(300):
        path.write_bytes(bytes(100))
        file = RealFileSystem().open(path, write=True)
        stamped = file.stamp()
        assert stamped is not None
        assert identity_at(path) == stamped
        file.write_at(5, b"x")
        assert identity_at(path) != stamped
        file.close()
        path.unlink()


def test_another_file_of_the_same_bytes_and_time_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"same")
    shutil.copy2(tmp_path / "one", tmp_path / "two")
    one, two = identity_at(tmp_path / "one"), identity_at(tmp_path / "two")
    assert one is not None
    assert two is not None
    assert (one.length, one.mtime_ns) == (two.length, two.mtime_ns)
    assert one.inode != two.inode
    assert identity_at(tmp_path / "three") is None
