"""The columns of a message in a table; (store, topic, queue_id, queue_offset) is the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lakelog_spark.options import ReadOptions

TYPES: Final = {
    "store": "string",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "physical_offset": "bigint",
    "store_size": "int",
    "message_id": "string",
    "unique_key": "string",
    "tags": "string",
    "keys": "array<string>",
    "properties": "map<string,string>",
    "body": "binary",
    "body_crc": "int",
    "flag": "int",
    "sys_flag": "int",
    "transaction_type": "string",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
}
"""Spark's type of each column, in their order."""

NAMES: Final = tuple(TYPES)
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
ERROR: Final = "error"
"""What is wrong with a row: a column of ``corrupt=collect`` only, behind all others."""


def names_of(options: ReadOptions) -> tuple[str, ...]:
    """The columns that a read gives: no ``body`` with ``include=headers``."""
    kept = tuple(name for name in NAMES if options.bodies or name != "body")
    return (*kept, ERROR) if options.corrupt == "collect" else kept


def ddl_of(options: ReadOptions) -> str:
    """The same, with their types."""
    return ", ".join(f"{name} {TYPES.get(name, 'string')}" for name in names_of(options))
