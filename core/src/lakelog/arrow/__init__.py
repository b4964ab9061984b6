"""Converts records to Arrow record batches; defines the columns of the message table.

Needs pyarrow, from the extra ``arrow``.
"""

from __future__ import annotations

try:
    import pyarrow as _pyarrow  # noqa: F401  # fails early if it is missing
except ImportError as error:
    raise ImportError(
        "columns need pyarrow, which is not installed: pip install lakelog-queues[arrow]"
    ) from error

from lakelog.arrow.convert import COLUMNS, empty, schema, to_arrow

__all__ = ["COLUMNS", "empty", "schema", "to_arrow"]
