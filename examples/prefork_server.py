"""How does a pre-fork server, such as gunicorn or uvicorn with workers, share a store?

Its master loads the application, then forks. With ``on_fork="attach"`` a store that was opened in
the master works in every worker, which opens it again on first use. (Without preloading, each
worker opens the store by itself, which works as well.)
"""

from __future__ import annotations

import os
import signal
import tempfile

import lakelog

WORKERS = 3


def serve(store: lakelog.Store, requests: int) -> None:
    """Run a worker; its first put opens the store again."""
    for number in range(requests):
        store.put(lakelog.Message("requests", b"%d of %d" % (number, os.getpid())))
    print(f"worker: {store.role}, {requests} requests", flush=True)
    store.close()


def main(path: str) -> None:
    """Open the store in the master, fork the workers, and wait for them."""
    attach = {"on_fork": "attach"}
    with lakelog.open(path, segment_size_bytes="4MiB", attach=attach) as store:
        store.put(lakelog.Message("log", b"the master is up"))
        workers = [fork(store, 10 * (number + 1)) for number in range(WORKERS)]
        for worker in workers:
            os.waitpid(worker, 0)
        print("master:", store.role, "of", sum(1 for _ in store.scan()), "messages")


def fork(store: lakelog.Store, requests: int) -> int:
    """Start a worker as such a server does."""
    worker = os.fork()
    if worker:
        return worker
    signal.alarm(30)
    try:
        serve(store, requests)
    finally:
        os._exit(0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
