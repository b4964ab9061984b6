"""A Spark data source for the store directories of lakelog and RocketMQ.

::

    import lakelog_spark

    spark = lakelog_spark.session()
    lakelog_spark.register(spark)
    spark.read.format("lakelog").load("STORE").count()

Modules are imported on first use, as this package is also a plugin that each store loads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_spark.micro_batches import lander
    from lakelog_spark.sessions import missing_java, session
    from lakelog_spark.shipping import ship
    from lakelog_spark.source import register
    from lakelog_spark.where import read
    from lakelog_spark.writing.handover import finish_write

__all__ = ["finish_write", "lander", "missing_java", "read", "register", "session", "ship"]

_HOMES = {
    "finish_write": "writing.handover",
    "lander": "micro_batches",
    "missing_java": "sessions",
    "read": "where",
    "register": "source",
    "session": "sessions",
    "ship": "shipping",
}
_NEED_SPARK = {"finish_write", "lander", "read", "register", "ship"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_SPARK:
        from lakelog_spark.sessions import need_spark

        need_spark()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
