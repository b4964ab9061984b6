"""A process that forks while another thread makes the first put of the process; the child puts too.

Its argument is the store. Each first use of a thing in compiled code may wait
for the interpreter lock, and a thread that waits does not exist in the child.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from threading import Event, Thread
from typing import Final

import lakelog
from lakelog import Message, Store

LONGEST_SECONDS: Final = 50


def put(store: Store, begun: Event) -> None:
    begun.set()
    store.put(Message("t", b"parent", queue_id=0))


def main() -> None:
    path = sys.argv[1]
    begun = Event()
    with lakelog.open(path, attach={"on_fork": "attach"}, flush="none") as store:
        thread = Thread(target=put, args=(store, begun))
        sys.setswitchinterval(1e-6)
        thread.start()
        while not begun.is_set():
            time.sleep(0)
        pid = os.fork()
        if not pid:
            signal.alarm(LONGEST_SECONDS)
            store.put(Message("t", b"child", queue_id=0))
            os._exit(0)
        ended = os.waitpid(pid, 0)[1]
        thread.join()
        assert ended == 0, f"the child ended with {ended}"
