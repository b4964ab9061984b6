"""Records as Arrow columns; see :mod:`lakelog_queues.arrow`, from ``lakelog-queues[arrow]``."""

from __future__ import annotations

from lakelog_queues.arrow import COLUMNS, empty, schema, to_arrow

__all__ = ["COLUMNS", "empty", "schema", "to_arrow"]
