"""JSON bodies as typed columns.

Each body is one object. Fields that the schema does not name are left out; one that is missing is
null. Types are strict: ``"1"`` and ``1.0`` are no integers, a number beyond 64 bits is bad, and so
are two values under one key of the schema. The schema file is a JSON Schema (:mod:`.jsonschema`)
or, if it does not begin with ``{``, a Spark DDL (:mod:`.ddl`).

Bodies are read in steps by Arrow's reader. A step that it refuses is cut around the bad body, or in
quarters where it does not say which one that is, until a few are left; these are looked at one by
one. So a bad body costs the others little, and each is judged as if it stood alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from lakelog_spark.landing.bodies import ddl, jsonschema
from lakelog_spark.landing.bodies.gathering import parsed
from lakelog_spark.landing.bodies.jsonfaults import fault
from lakelog_spark.landing.bodies.jsonread import Unread, has_no_number, joined, not_objects, read
from lakelog_spark.landing.bodies.refusing import refused
from lakelog_spark.landing.bodies.shapes import Shape, table_type
from lakelog_spark.landing.bodies.utf8 import not_utf8, without
from lakelog_spark.landing.bodying import Parsed

_STEP_ROWS: Final = 1024
_STEP_BYTES: Final = 4 << 20
_FEW: Final = 16
"""As many bodies are looked at one by one where the fast reader refuses them."""


@attrs.frozen(slots=False)
class Json:
    """A parser of JSON bodies.

    :ivar shape: what a body should look like
    """

    shape: Shape

    @classmethod
    def of(cls, text: str, source: str) -> Json:
        """The parser for the schema ``text``; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            if text.lstrip().startswith("{"):
                return cls(jsonschema.shape_of(json.loads(text)))
            return cls(ddl.shape_of(text))
        except (ValueError, RecursionError) as error:
            raise refused(f"no schema that JSON can be read by: {error}", source) from error

    @cached_property
    def fields(self) -> pa.Schema:
        """A column for each field of the body."""
        return pa.schema([(each.name, table_type(each)) for each in self.shape.fields])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """The columns of the bodies that are as the schema says."""
        faults = not_utf8(bodies)
        texts, kept = without(bodies, faults)
        for row, why in not_objects(texts).items():
            faults[int(kept[row])] = why
        texts, kept = without(bodies, faults)
        parts = [
            batch
            for first, behind in _steps(texts)
            for batch in self._step(texts[first:behind], kept[first:behind], faults)
        ]
        return parsed(self.fields, parts, faults, len(bodies))

    def _step(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """Some bodies, whose rows are ``rows``; what is wrong goes to ``faults``."""
        if has_no_number(joined(bodies).to_pybytes()):
            return self._one_by_one(bodies, rows, faults)
        return self._read(bodies, rows, faults)

    def _read(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """The same, around the bad ones; all parts are decided on their own."""
        if not len(bodies):
            return []
        try:
            return [read(bodies, self.shape, self.fields)]
        except Unread as error:
            bad = error.row
        if len(bodies) <= _FEW:
            return self._one_by_one(bodies, rows, faults)
        cuts = _around(bad, len(bodies))
        return [
            part
            for first, behind in pairwise((0, *cuts, len(bodies)))
            for part in self._read(bodies[first:behind], rows[first:behind], faults)
        ]

    def _one_by_one(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        found = ((row, fault(body.as_py(), self.shape)) for row, body in enumerate(bodies))
        bad = {row: why for row, why in found if why is not None}
        faults.update({int(rows[row]): why for row, why in bad.items()})
        left, kept = without(bodies, bad)
        return self._halves(left, rows[kept], faults)

    def _halves(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        """Bodies with faults that only Arrow's reader finds."""
        if not len(bodies):
            return []
        try:
            return [read(bodies, self.shape, self.fields)]
        except Unread as error:
            if len(bodies) == 1:
                faults[int(rows[0])] = str(error)
                return []
        half = len(bodies) // 2
        return [
            *self._halves(bodies[:half], rows[:half], faults),
            *self._halves(bodies[half:], rows[half:], faults),
        ]


def _around(bad: int | None, count: int) -> tuple[int, ...]:
    """Where to cut ``count`` bodies to go on without the one that may be bad."""
    if bad is None or bad >= count:
        return (count // 4, count // 2, count - count // 4)
    return (bad, min(bad + _FEW, count))


def _steps(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Runs of bodies of a bounded count and size."""
    import pyarrow.compute as pc

    ends = np.cumsum(pc.binary_length(bodies).to_numpy(zero_copy_only=False), dtype=np.int64)
    first = 0
    while first < len(bodies):
        before = int(ends[first - 1]) if first else 0
        behind = int(np.searchsorted(ends, before + _STEP_BYTES, side="right"))
        behind = max(first + 1, min(behind, first + _STEP_ROWS))
        yield first, behind
        first = behind
