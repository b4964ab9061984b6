"""Records as Arrow record batches: the columns of the table, and how they are made of records.

Needs pyarrow, which the extra ``arrow`` brings.
"""

from __future__ import annotations

try:
    import pyarrow as _pyarrow  # noqa: F401  # tells at once what is missing
except ImportError as error:
    raise ImportError(
        "columns need pyarrow, which is not installed: pip install lakelog-core[arrow]"
    ) from error

from lakelog.arrow.convert import to_arrow
from lakelog.arrow.schema import COLUMNS, empty, schema

__all__ = ["COLUMNS", "empty", "schema", "to_arrow"]
