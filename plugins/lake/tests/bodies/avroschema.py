"""An Avro schema with every kind of field, and an event of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

SCHEMA: Any = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {
            "name": "user",
            "type": {
                "type": "record",
                "name": "User",
                "fields": [
                    {"name": "name", "type": "string"},
                    {"name": "likes", "type": ["Colour", "null"]},
                ],
            },
        },
        {"name": "users", "type": {"type": "array", "items": "shop.User"}},
        {"name": "by_name", "type": {"type": "map", "values": "User"}},
        {"name": "topic", "type": "float"},
    ],
}
EVENT = {
    "id": -1,
    "note": None,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
    "due": date(2026, 1, 2),
    "uuid": UUID(int=5),
    "clock": 86_399_999,
    "price": Decimal("-12.50"),
    "colour": "BLUE",
    "mark": b"\xff\x00",
    "user": {"name": "é", "likes": "RED"},
    "users": [{"name": "", "likes": None}],
    "by_name": {"x": {"name": "x", "likes": None}},
    "topic": 0.5,
}


def event() -> bytes:
    """The bytes of :data:`EVENT`."""
    fastavro, file = import_module("fastavro"), BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(SCHEMA), EVENT)
    return file.getvalue()
