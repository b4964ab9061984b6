"""How does a consumer store its position?"""

from __future__ import annotations

import tempfile

import lakelog


def main(folder: str) -> None:
    """Read half of the messages, close the store, and continue from the stored position."""
    with lakelog.open(folder, segment_size_bytes="1MiB") as store:
        store.put_batch([lakelog.Message("orders", b"order %d" % n) for n in range(100)])
        with store.consumer("billing", "orders") as consumer:
            done = 0
            while done < 50:
                done += len(consumer.poll(10))
                consumer.commit()  # stores the position
            print("handled", done, "behind by", sum(consumer.lag().values()))

    with (
        lakelog.open(folder) as store,
        store.consumer("billing", "orders") as consumer,
    ):
        while messages := consumer.poll(16):
            print("next:", bytes(messages[0].body), "and", len(messages) - 1, "more")
            consumer.commit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
