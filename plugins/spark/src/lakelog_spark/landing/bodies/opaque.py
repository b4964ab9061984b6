"""Bodies without a schema: bytes as they are, and text."""

from __future__ import annotations

import attrs
import pyarrow as pa

from lakelog_spark.landing.bodies.gathering import parsed
from lakelog_spark.landing.bodies.utf8 import as_strings, not_utf8, without
from lakelog_spark.landing.bodying import Parsed


@attrs.frozen
class Binary:
    """Bodies as they are; none is bad."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.binary())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """All of them."""
        columns = pa.RecordBatch.from_arrays([bodies.cast(pa.binary())], schema=self.fields)
        return parsed(self.fields, [columns], {}, len(bodies))


@attrs.frozen
class String:
    """Bodies that are UTF-8; others are bad."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.string())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Those that are text."""
        faults = not_utf8(bodies)
        texts = as_strings(without(bodies, faults)[0]).cast(pa.string())
        columns = pa.RecordBatch.from_arrays([texts], schema=self.fields)
        return parsed(self.fields, [columns], faults, len(bodies))
