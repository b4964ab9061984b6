"""How are old segments moved to cheaper storage, and still read by their offset?

Needs lakelog-archive from contrib/archive.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import lakelog


def main(folder: Path) -> None:
    """Append, let retention keep two segments, and read the first message."""
    with lakelog.open(
        folder / "store",
        segment_size_bytes="64KiB",
        cleaner="retention",
        retention={"max_segments": 2},
        archive="fsspec",
        fsspec={"url": str(folder / "archive")},  # or s3://..., hdfs://...
    ) as store:
        for number in range(1000):
            store.put(lakelog.Message("orders", b"order %d " % number * 30, queue_id=0))
        store.wait_dispatched()
        report = store.delete_expired()
        print("deleted from the log:", len(report.deleted), "segments")
        print("the log begins at offset", store.min_offset)
        print("the oldest readable offset is", store.oldest_offset)
        print("first message:", bytes(store.look_up(0).body[:7]).decode())
        print("messages from offset 0 on:", sum(1 for _ in store.scan(start=0)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
