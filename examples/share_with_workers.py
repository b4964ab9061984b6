"""How do the workers of a pool put into one store?"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections import Counter

import lakelog


def work(path: str, number: int) -> str:
    """Run one worker: each opens the store by itself, in any order."""
    with lakelog.open(path, segment_size_bytes="4MiB", flush="inline") as store:
        batch = [lakelog.Message("results", b"%d" % n, keys=f"job-{number}") for n in range(500)]
        store.put_batch(batch)
        last = store.put(lakelog.Message("done", b"%d" % number))
        return f"{store.role}, durable up to {store.flushed_offset >= last.end_offset}"


def main(path: str) -> None:
    """Keep the store open here, so that this process has the services, while four others put."""
    with lakelog.open(path, segment_size_bytes="4MiB", flush="inline") as store:
        print("this process:", store.role)
        with multiprocessing.get_context("spawn").Pool(4) as pool:
            for said in pool.starmap(work, [(path, number) for number in range(4)]):
                print("a worker:", said)
        print(Counter(message.topic for message in store.scan()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(os.path.join(temporary, "store"))
