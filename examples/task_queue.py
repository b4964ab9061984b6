"""How do tasks of a pool such as Celery's put messages, also if their processes are killed?

A task's process opens the store once and keeps it. Each process appends directly, and one of them
builds the queues; when it ends, another one does. Nothing is lost or duplicated.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from multiprocessing import get_context

import lakelog

TASKS_PER_CHILD = 10
"""Like Celery's worker_max_tasks_per_child: processes start and end, the owner included."""


@cache
def the_store(path: str) -> lakelog.Store:
    """The store of this process; opened by the first task that needs it."""
    return lakelog.open(path, segment_size_bytes="4MiB", flush="inline")


def task(path: str, number: int) -> tuple[int, str]:
    """Put the result of a task."""
    store = the_store(path)
    store.put(lakelog.Message("results", b"%d" % number, queue_id=0))
    return os.getpid(), store.role


def main(path: str) -> None:
    """Run tasks in two processes at a time, each of which runs a few tasks only."""
    with get_context("spawn").Pool(2, maxtasksperchild=TASKS_PER_CHILD) as pool:
        done = pool.starmap(task, [(path, number) for number in range(40)], chunksize=1)
    owners = {pid for pid, role in done if role == "owner"}
    print(len({pid for pid, _ in done}), "processes;", len(owners), "of them owned the store")
    with lakelog.open(path, mode="read") as store:
        found = sorted(int(bytes(message.body)) for message in store.scan())
    print("each result exactly once:", found == list(range(40)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
