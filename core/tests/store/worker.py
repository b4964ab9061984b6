"""A program that opens a store in a role, and does what it is told, a line of JSON at a time."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import lakelog
from lakelog import Store
from lakelog.store.open import open_to_serve


def told(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def opened(path: str, given: dict[str, Any]) -> Store:
    time.sleep(max(0.0, given.pop("at", 0.0) - time.monotonic()))
    if given["mode"] != "serve":
        return lakelog.open(path, **given)
    del given["mode"]
    return open_to_serve(path, plugins=given.pop("plugins"), arguments=given)


def puts(store: Store, name: str, count: int) -> list[int]:
    bodies = [b"%s %d" % (name.encode(), number) for number in range(count)]
    done = [store.put(lakelog.Message("t", each, queue_id=0)) for each in bodies]
    return [each.physical_offset for each in done]


def forked() -> int:
    """A child that keeps all that is open here, but not the test's pipe."""
    child = os.fork()
    if not child:
        os.close(0)
        os.close(1)
        time.sleep(60)
        os._exit(0)
    return child


def obey(store: Store, names: dict[str, Any], word: str, *rest: Any) -> None:
    if word == "put":
        told(offsets=puts(store, *rest), role=store.role)
    elif word == "fork":
        told(child=forked())
    elif word == "close":
        store.close()
        told(role=store.role)
    else:
        told(is_=eval(word, names))


def main() -> None:
    try:
        store = opened(sys.argv[1], json.loads(sys.argv[2]))
    except lakelog.LakelogError as error:
        told(error=type(error).__name__, text=str(error))
        return
    told(role=store.role)
    names = {"store": store, "lakelog": lakelog, "os": os}
    for line in sys.stdin:
        try:
            obey(store, names, *json.loads(line))
        except Exception as error:  # noqa: BLE001  # any error goes to the test
            told(error=type(error).__name__, text=str(error))
    store.close()
