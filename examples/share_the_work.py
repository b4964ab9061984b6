"""How do workers share the messages of a topic?"""

from __future__ import annotations

import tempfile
import threading

import lakelog


def work(store: lakelog.Store, name: str, done: dict[bytes, str]) -> None:
    """Handle messages as a member of a group; this could be another process as well."""
    with store.subscribe("billing", "orders", start="earliest") as consumer:
        while deliveries := consumer.poll(max_messages=8, wait_ms=2000):
            for delivery in deliveries:
                if delivery.message.body == b"order 7" and delivery.attempt == 1:
                    consumer.nack(delivery, delay_ms=100)  # comes again, through %RETRY%billing
                else:
                    done[delivery.message.body] = name
                    consumer.ack(delivery)


def main(folder: str) -> None:
    """Let three threads handle the messages of six queues."""
    with lakelog.open(folder, segment_size_bytes="1MiB") as store:
        store.put_batch([lakelog.Message("orders", b"order %d" % n) for n in range(60)])
        done: dict[bytes, str] = {}
        workers = [
            threading.Thread(target=work, args=(store, f"worker {n}", done)) for n in range(3)
        ]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        print("handled", len(done), "of 60")
        print("committed", sum(store.groups()["billing"]["orders"].values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
