"""How is a message found by its key?"""

from __future__ import annotations

import tempfile

import lakelog

SMALL_INDEX = {"slots": 1000, "entries": 4000}  # the default has room for 20 million keys


def main(folder: str) -> None:
    """Put messages with keys, and query one of them."""
    with lakelog.open(
        folder, segment_size_bytes="1MiB", settings={"hash-index": SMALL_INDEX}
    ) as store:
        for number in range(1000):
            keys = [f"order-{number}", f"customer-{number % 7}"]
            store.put(lakelog.Message("orders", b"order %d" % number, keys=keys))
        print(bytes(store.query("orders", "order-42")[0].body))
        newest = store.query("orders", "customer-3", max_messages=3)
        print("the newest of customer 3:", [bytes(each.body) for each in newest])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
