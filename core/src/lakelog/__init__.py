"""lakelog: an embeddable message log whose files are those of Apache RocketMQ's message store.

>>> import lakelog
>>> with lakelog.open("/tmp/events") as store:              # doctest: +SKIP
...     result = store.put(lakelog.Message("orders", b"hello"))
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError(
        f"lakelog needs Linux (its locks, futexes and maps), and this is {sys.platform!r}: run it "
        "on Linux, in a container, or in WSL 2"
    )

from lakelog.errors import LakelogError, PutRefused
from lakelog.message import Message, StoredMessage
from lakelog.runtime import former_names
from lakelog.status import PutStatus

if TYPE_CHECKING:
    from lakelog.consumers.consumer import Consumer
    from lakelog.message import MessageColumns
    from lakelog.reading.results import ColumnsResult, GetResult, GetStatus, QueueInfo
    from lakelog.recovery.report import RecoveryReport
    from lakelog.results import BatchResult, PutResult
    from lakelog.settings.resource import embedded
    from lakelog.store.open import open_store as open  # noqa: A004  # lakelog.open, like gzip.open
    from lakelog.store.producer import Producer
    from lakelog.store.recover import recover
    from lakelog.store.store import Store
    from lakelog_doctor.repair import RepairReport, repair

__all__ = [
    "BatchResult",
    "ColumnsResult",
    "Consumer",
    "GetResult",
    "GetStatus",
    "LakelogError",
    "Message",
    "MessageColumns",
    "Producer",
    "PutRefused",
    "PutResult",
    "PutStatus",
    "QueueInfo",
    "RecoveryReport",
    "RepairReport",
    "Store",
    "StoredMessage",
    "embedded",
    "open",
    "recover",
    "repair",
]

_LAZY = {
    "open": ("lakelog.store.open", "open_store"),
    "Producer": ("lakelog.store.producer", "Producer"),
    "Store": ("lakelog.store.store", "Store"),
    "PutResult": ("lakelog.results", "PutResult"),
    "BatchResult": ("lakelog.results", "BatchResult"),
    "ColumnsResult": ("lakelog.reading.results", "ColumnsResult"),
    "Consumer": ("lakelog.consumers.consumer", "Consumer"),
    "GetResult": ("lakelog.reading.results", "GetResult"),
    "GetStatus": ("lakelog.reading.results", "GetStatus"),
    "MessageColumns": ("lakelog.message", "MessageColumns"),
    "QueueInfo": ("lakelog.reading.results", "QueueInfo"),
    "RecoveryReport": ("lakelog.recovery.report", "RecoveryReport"),
    "RepairReport": ("lakelog_doctor.repair", "RepairReport"),
    "embedded": ("lakelog.settings.resource", "embedded"),
    "recover": ("lakelog.store.recover", "recover"),
    "repair": ("lakelog_doctor.repair", "repair"),
}


former_names.install()


def __getattr__(name: str) -> Any:
    """Import what a program uses when it first uses it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value
