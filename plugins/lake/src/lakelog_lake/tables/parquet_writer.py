"""Writes data files: dictionary encoding, statistics and compression by column.

Half of the cost of landing is zstd, mostly for bodies. Bodies that do not shrink, such as images or
encrypted data, are therefore not compressed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from lakelog.errors import SettingsError
from lakelog_lake.tables.fields import BODY, REPEATING
from lakelog_lake.tables.file_facts import BOUNDED

if TYPE_CHECKING:
    import pyarrow as pa

_LEVEL: Final = 1
"""The zstd level; level 3 takes three times as long for almost no gain."""
_SAMPLE_BYTES: Final = 256 << 10
_SAMPLE_ROWS: Final = (16, 4096)
_TOO_FEW_BYTES: Final = 4096
_LEAST_GAIN: Final = 0.1


class ParquetCompression(StrEnum):
    """Compression of data files; ``auto`` is zstd, except for bodies that do not shrink."""

    AUTO = "auto"
    ZSTD = "zstd"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    NONE = "none"

    @classmethod
    def of(cls, text: str) -> ParquetCompression:
        """Parse a name; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            return cls(text)
        except ValueError:
            raise SettingsError(
                f"{text!r} is not one of {', '.join(cls)}", key="compression"
            ) from None


def parquet_writer(
    file: Any,
    schema: pa.Schema,
    compression: ParquetCompression,
    first: pa.RecordBatch | None = None,
) -> Any:
    """A ``pyarrow.parquet.ParquetWriter``.

    :param first: rows of the file, from which ``auto`` decides; without them all is compressed
    """
    from pyarrow import parquet

    codec, packed = compression.value, True
    if compression is ParquetCompression.AUTO:
        codec = ParquetCompression.ZSTD.value
        packed = first is None or not _has_bytes(schema) or shrinks(first.column(BODY))
    level = _LEVEL if codec == ParquetCompression.ZSTD else None
    leaves = [] if packed else [each for each in _leaves(schema) if each != BODY]
    return parquet.ParquetWriter(
        file,
        schema,
        compression=codec if packed else {**dict.fromkeys(leaves, codec), BODY: "none"},
        compression_level=level if packed else dict.fromkeys(leaves, level),
        use_dictionary=[name for name in REPEATING if name.partition(".")[0] in schema.names],
        write_statistics=[name for name in BOUNDED if name in schema.names],
        store_schema=False,
    )


def _has_bytes(schema: pa.Schema) -> bool:
    """A parser's column of this name may have another type; text always shrinks by a tenth."""
    import pyarrow as pa

    return BODY in schema.names and bool(pa.types.is_binary(schema.field(BODY).type))


def shrinks(bodies: pa.Array) -> bool:
    """Whether zstd shrinks a sample of ``bodies`` by at least a tenth; True for few bytes."""
    import numpy as np
    import pyarrow as pa

    if bodies.nbytes < _TOO_FEW_BYTES:
        return True
    least, most = _SAMPLE_ROWS
    rows = min(len(bodies), max(least, min(most, _SAMPLE_BYTES * len(bodies) // bodies.nbytes)))
    places = np.linspace(0, len(bodies) - 1, rows).astype(np.int64)
    longest = _SAMPLE_BYTES // least
    sample = b"".join((each or b"")[:longest] for each in bodies.take(places).to_pylist())
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(sample, asbytes=True)
    return len(packed) <= (1 - _LEAST_GAIN) * len(sample)


def _leaves(schema: pa.Schema) -> list[str]:
    """The leaf columns by Parquet path."""
    import pyarrow as pa
    from pyarrow import parquet

    made = pa.BufferOutputStream()
    parquet.write_metadata(schema, made)
    found = parquet.ParquetFile(pa.BufferReader(made.getvalue())).schema
    return [found.column(number).path for number in range(len(found))]
