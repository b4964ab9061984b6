"""lakelog: an embeddable message log whose files are those of Apache RocketMQ's message store.

::

    import lakelog

    with lakelog.open("/tmp/events") as store:
        result = store.put(lakelog.Message("orders", b"hello"))
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError(
        f"lakelog needs Linux (its locks, futexes and maps), and this is {sys.platform!r}: run it "
        "on Linux, in a container, or in WSL 2"
    )

from lakelog.errors import LakelogError, NotDurable, PutRefused
from lakelog.message import Message, StoredMessage
from lakelog.results import PutStatus

if TYPE_CHECKING:
    from lakelog.message import MessageColumns
    from lakelog.recovery.report import RecoveryReport
    from lakelog.results import BatchResult, PutResult
    from lakelog.settings.resolver import embedded
    from lakelog.store.log_store import LogStore, Producer
    from lakelog.store.open import open_store as open  # noqa: A004  # lakelog.open, like gzip.open
    from lakelog_doctor.recover import cut_replica, promote, recover
    from lakelog_doctor.repair import RepairReport, repair
    from lakelog_queues.consumers.consumer import Consumer
    from lakelog_queues.finding.results import ColumnsResult, GetResult, GetStatus, QueueInfo
    from lakelog_queues.groups.consumer import GroupConsumer
    from lakelog_queues.groups.leases import Delivery
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
    "NotDurable",
    "Producer",
    "PutRefused",
    "PutResult",
    "PutStatus",
    "QueueInfo",
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

_MODULES = {
    "lakelog.message": "MessageColumns",
    "lakelog.recovery.report": "RecoveryReport",
    "lakelog.results": "BatchResult PutResult",
    "lakelog.settings.resolver": "embedded",
    "lakelog.store.log_store": "LogStore Producer",
    "lakelog.store.open": "open_store",
    "lakelog_doctor.recover": "cut_replica promote recover",
    "lakelog_doctor.repair": "RepairReport repair",
    "lakelog_queues.consumers.consumer": "Consumer",
    "lakelog_queues.finding.results": "ColumnsResult GetResult GetStatus QueueInfo",
    "lakelog_queues.groups.consumer": "GroupConsumer",
    "lakelog_queues.groups.leases": "Delivery",
    "lakelog_queues.store": "Store",
}
_LAZY = {each: (module, each) for module, names in _MODULES.items() for each in names.split()}
_LAZY["open"] = _LAZY.pop("open_store")

_PACKAGES = {"lakelog_doctor": "lakelog-tools", "lakelog_queues": "lakelog-queues"}


if not TYPE_CHECKING:  # with it, type checkers would accept any name

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
            what = f"lakelog.{name} comes with {package}: pip install {package}"
            raise ImportError(what) from error
        return globals().setdefault(name, value)
