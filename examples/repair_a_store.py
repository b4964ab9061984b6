"""How does lakelog report and repair a damaged record?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import lakelog


def fill(path: str) -> int:
    """Put some orders; return the offset of the sixth record."""
    with lakelog.open(path, segment_size_bytes="1MiB") as store:
        results = [
            store.put(lakelog.Message("orders", b"order %d" % at, queue_id=0)) for at in range(10)
        ]
        return results[5].physical_offset


def damage(path: str, offset: int) -> None:
    """Flip a bit of its body, as a bad disk might."""
    with (Path(path) / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offset + 90)
        byte = segment.read(1)[0]
        segment.seek(offset + 90)
        segment.write(bytes([byte ^ 1]))


def main(path: str) -> None:
    """Damage a closed store, verify it, then repair it."""
    damage(path, fill(path))
    with lakelog.open(path) as store:
        assert store.recovery is not None
        for place in store.recovery.damage:
            print("found:", place)
        print("still there:", [bytes(message.body) for message in store.scan()])
    plan = lakelog.repair(path, dry_run=True).plan
    for step in plan.steps:
        print("would do:", step)
    report = lakelog.repair(path)
    print("lost, and replaced by a record that RocketMQ accepts:", len(report.plan.steps))
    with lakelog.open(path) as store:
        assert store.recovery is not None
        assert not store.recovery.damage
        print("queue:", [bytes(message.body) for message in store.read("orders", 0)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
