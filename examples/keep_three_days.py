"""How does a store delete old messages?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import lakelog


def main(folder: str) -> None:
    """Keep three days, and at most ten segments; print each deletion with its reason."""
    with lakelog.open(
        folder,
        segment_size_bytes="64KiB",
        cleaner="retention",
        disk_watcher="psutil",
        retention={"file_reserved_hours": "3d", "delete_when": "04;16", "max_segments": 10},
        psutil={"min_free_bytes": "64MiB"},
    ) as store:
        for number in range(2000):
            store.put(lakelog.Message("orders", b"order %d" % number + b"." * 400))
        print(len(list((Path(folder) / "commitlog").iterdir())), "segments")

        # A store does this by itself: at 4 and 16 o'clock, above a limit, or for disk space.
        for gone in store.delete_expired().deleted:
            print(f"deleted the segment at {gone.start_offset}: {gone.reason}")
        print("the log now begins at", store.min_offset)

        disk = store.disk()
        if disk is not None:
            print("the disk:", disk.state.value, f"{disk.disks[0].used_ratio:.0%} used")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
