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
    from lakelog.message import MessageColumns
    from lakelog.recovery.report import RecoveryReport
    from lakelog.results import BatchResult, PutResult
    from lakelog.settings.toml import embedded
    from lakelog.store.log_store import LogStore
    from lakelog.store.open import open_store as open  # noqa: A004  # lakelog.open, like gzip.open
    from lakelog.store.producer import Producer
    from lakelog_doctor.recover import cut_replica, promote, recover
    from lakelog_doctor.repair import RepairReport, repair
    from lakelog_queues.consumers.consumer import Consumer
    from lakelog_queues.finding.results import (
        ColumnsResult,
        GetResult,
        GetStatus,
        QueueInfo,
        RecordsResult,
    )
    from lakelog_queues.groups.consumer import GroupConsumer
    from lakelog_queues.groups.delivery import Delivery
    from lakelog_queues.store import Store

__all__ = [
    "BatchResult",
    "ColumnsResult",
    "Consumer",
    "Delivery",
    "GetResult",
    "GetStatus",
    "GroupConsumer",
    "LakelogError",
    "LogStore",
    "Message",
    "MessageColumns",
    "Producer",
    "PutRefused",
    "PutResult",
    "PutStatus",
    "QueueInfo",
    "RecordsResult",
    "RecoveryReport",
    "RepairReport",
    "Store",
    "StoredMessage",
    "cut_replica",
    "embedded",
    "open",
    "promote",
    "recover",
    "repair",
]

_LAZY = {
    "open": ("lakelog.store.open", "open_store"),
    "Producer": ("lakelog.store.producer", "Producer"),
    "LogStore": ("lakelog.store.log_store", "LogStore"),
    "Store": ("lakelog_queues.store", "Store"),
    "PutResult": ("lakelog.results", "PutResult"),
    "BatchResult": ("lakelog.results", "BatchResult"),
    "ColumnsResult": ("lakelog_queues.finding.results", "ColumnsResult"),
    "Consumer": ("lakelog_queues.consumers.consumer", "Consumer"),
    "Delivery": ("lakelog_queues.groups.delivery", "Delivery"),
    "GroupConsumer": ("lakelog_queues.groups.consumer", "GroupConsumer"),
    "GetResult": ("lakelog_queues.finding.results", "GetResult"),
    "GetStatus": ("lakelog_queues.finding.results", "GetStatus"),
    "MessageColumns": ("lakelog.message", "MessageColumns"),
    "QueueInfo": ("lakelog_queues.finding.results", "QueueInfo"),
    "RecordsResult": ("lakelog_queues.finding.results", "RecordsResult"),
    "RecoveryReport": ("lakelog.recovery.report", "RecoveryReport"),
    "RepairReport": ("lakelog_doctor.repair", "RepairReport"),
    "cut_replica": ("lakelog_doctor.recover", "cut_replica"),
    "embedded": ("lakelog.settings.toml", "embedded"),
    "promote": ("lakelog_doctor.recover", "promote"),
    "recover": ("lakelog_doctor.recover", "recover"),
    "repair": ("lakelog_doctor.repair", "repair"),
}

_PACKAGES = {"lakelog_doctor": "lakelog-tools", "lakelog_queues": "lakelog-queues"}

former_names.install()


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    try:
        value = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "")
        if package is None:
            raise
        raise ImportError(f"lakelog.{name} comes with {package}: pip install {package}") from error
    globals()[name] = value
    return value
