"""A lakelog master that puts messages at a steady rate; arguments ``STORE PORT``.

Each line of its input is a rate in messages per second, from then on. At the end of the input the
store is closed, and the number of messages is printed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Final

import lakelog

_BODY: Final = bytes(1000)
_BATCHES_PER_SECOND: Final = 20


def main() -> None:
    """Serve slaves and put until the input ends."""
    path, port = sys.argv[1:]
    rate, over = [0], threading.Event()

    def read() -> None:
        for line in sys.stdin:
            rate[0] = int(line)
        over.set()

    section = {"port": int(port), "heartbeat_interval_ms": 1000}
    with lakelog.open(
        Path(path), replicator="rocketmq-ha", rocketmq_ha=section, segment_size_bytes=1 << 24
    ) as store:
        threading.Thread(target=read, daemon=True).start()
        sent, due = 0, time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            due += 1 / _BATCHES_PER_SECOND
            count = rate[0] // _BATCHES_PER_SECOND
            if count:
                messages = [
                    lakelog.Message("orders", _BODY, queue_id=(sent + each) % 4)
                    for each in range(count)
                ]
                store.put_batch(messages)
                sent += count
    print(sent)


if __name__ == "__main__":
    main()
