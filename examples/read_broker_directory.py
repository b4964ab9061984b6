"""What is in the store directory of a RocketMQ broker? (Needs no broker; changes nothing.)

    python examples/read_broker_directory.py [STORE_DIRECTORY]

Without an argument it unpacks a directory of a real broker.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import lakelog
from lakelog.format.compression import decompress

EXAMPLE = Path(__file__).parents[1] / "tests" / "data" / "fixtures" / "real_broker.tar.xz"


def report(path: Path) -> None:
    """Count its messages by topic, and show the first compressed one."""
    with lakelog.open(path, mode="read") as store:
        size = store.settings.core.segment_size_bytes
        print(f"segments of {size} bytes ({store.settings.origins['segment_size_bytes']})")
        topics: Counter[str] = Counter()
        packed = None
        for message in store.scan():
            topics[message.topic] += 1
            if packed is None and message.sys_flag & 1:
                packed = message
        for topic, count in topics.most_common():
            print(f"{count:8} {topic}")
        if packed is not None:
            body = decompress(packed.body, packed.sys_flag)
            print(f"{packed.message_id}: {len(packed.body)} bytes, unpacked {len(body)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary, tarfile.open(EXAMPLE) as archive:
            archive.extractall(temporary, filter="data")
            report(Path(temporary) / "real_broker" / "store")
