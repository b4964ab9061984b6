"""The columns of a message in a table; (store, topic, queue_id, queue_offset) is the key."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
"""The Spark type of each column, in column order."""

NAMES: Final = tuple(TYPES)
DDL: Final = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
ERROR: Final = "error"
"""The column of errors, which is last, and present with ``corrupt=collect`` only."""


def store_name(path: Path) -> str:
    """The value of the column ``store``: the store's UUID, or without one the folder's name."""
    from lakelog.files.filesystem import RealFileSystem
    from lakelog.files.state.identity import read_identity

    identity = read_identity(RealFileSystem(), path)
    return path.resolve().name if identity is None else identity.uuid
