"""One of several producers, in a separate process; see :mod:`tests.bench.processes.owner`.

``python -m tests.bench.processes.producer DRIVER DIRECTORY WORK``: opens the store, prints that it
is ready, waits for a line, warms up, measures, and prints its figures as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from tests.bench import durable
from tests.bench.durable.child import WARM_UP_SHARE, measure
from tests.bench.durable.work import Work

READY: Final = "ready"


def main(name: str, directory: str, work: str) -> None:
    """Put beside others, and print the figures."""
    wanted = Work(**json.loads(work))
    driver = durable.module(name).Peer()
    driver.open(Path(directory), wanted.options)
    _say(READY)
    sys.stdin.readline()
    measure(driver, wanted, wanted.seconds / WARM_UP_SHARE)
    _say(json.dumps(measure(driver, wanted, wanted.seconds)))
    sys.stdin.readline()  # others still measure; an early close would make them faster
    driver.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
