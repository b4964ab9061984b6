"""How is a message put, and read back?"""

from __future__ import annotations

import tempfile

import lakelog


def main(folder: str) -> None:
    """Put three messages, then read them by place, by id and in order."""
    with lakelog.open(folder, segment_size_bytes="1MiB", flush="inline") as store:
        first = store.put(lakelog.Message("orders", b"one espresso", tags="bar", keys="order-1"))
        store.put_batch(
            [
                lakelog.Message("orders", b"two cakes", tags="kitchen", keys="order-2"),
                lakelog.Message("visits", b"a dog", properties={"name": "Rex"}),
            ]
        )
        print("durable up to byte", store.flushed_offset)
        print("at its offset:    ", store.look_up(first.physical_offset).body)
        print("by its message id:", store.look_up(first.message_id).keys)

    # Reading takes no lock, so it works in any process, also while others write.
    with lakelog.open(folder, mode="read") as store:
        for message in store.scan():
            print(message.queue_offset, message.topic, message.tags, bytes(message.body))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
