"""How is a queue read: by offset, by tag, by time, and as columns?"""

from __future__ import annotations

import tempfile

import lakelog


def main(folder: str) -> None:
    """Put a hundred orders into one queue, then read some of them."""
    with lakelog.open(folder, segment_size_bytes="1MiB") as store:
        for number in range(100):
            tags = "bar" if number % 3 else "kitchen"
            store.put(lakelog.Message("orders", b"order %d" % number, tags=tags, queue_id=0))

        found = store.get("orders", 0, offset=40, max_messages=3)
        print(found.status.name, [bytes(each.body) for each in found.messages])
        print("continue at", found.next_offset, "of", found.min_offset, "to", found.max_offset)

        kitchen = store.get("orders", 0, 0, tags="kitchen || garden")
        print("kitchen:", [each.queue_offset for each in kitchen.messages][:5], "...")

        now_ms = found.messages[0].store_timestamp_ms
        print("stored at that time:", store.offset_by_time("orders", 0, now_ms))

        columns = store.get_columns("orders", 0, 0, 1000, columns=["queue_offset", "tags", "body"])
        print(columns.batch.num_rows, "rows:", columns.batch.schema.names)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
