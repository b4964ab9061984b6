"""The protocol of body parsers, which replace the column ``body`` by typed columns; and their base.

A parser is sent to the processes that write data files. It must be small, picklable, and
deterministic in each process. It must not raise for the content of a body: the row is marked as not
good, and lands in the table of dead letters with its error and its raw body.

Columns have the names of a schema's fields:

- characters other than ASCII letters, digits and underscores become underscores, as engines treat
  them differently
- a name that is also a column of messages gets the prefix ``body_``
- names that are equal after this, or differ only in case, are refused, as engines ignore case
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any, Final, Protocol

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lakelog.errors import SettingsError, raised_by_handler
from lakelog_lake.errors import TemporaryError
from lakelog_lake.log.records import ERROR, NAMES


@attrs.frozen(eq=False)
class Parsed:
    """The result of parsing some bodies.

    :ivar columns: one row for each parsed body, in the order of the bodies, with exactly the
        parser's ``fields``
    :ivar good: whether each body was parsed, one flag for each body
    :ivar errors: one line of text for each body that was not parsed, in the order of the bodies
    """

    columns: pa.RecordBatch
    good: NDArray[np.bool_]
    errors: Sequence[str] = ()


class BodyParser(Protocol):
    """Converts bodies to columns; the module's docstring has the contract."""

    @property
    def fields(self) -> pa.Schema:
        """The columns in place of ``body``; all of them are nullable.

        No name is one of a message's columns (:data:`lakelog_lake.log.records.NAMES`), ``day``,
        ``hour`` or ``error``, except ``body`` itself.
        """

    def parse(self, bodies: pa.BinaryArray | pa.LargeBinaryArray, rows: pa.RecordBatch) -> Parsed:
        """Parse ``bodies``, none of which is null.

        :param rows: the other columns of the same messages, one row for each body
        """


_LONGEST: Final = 300


def parsed(
    fields: pa.Schema, parts: Sequence[pa.RecordBatch], faults: Mapping[int, str], rows: int
) -> Parsed:
    """Build the result for ``rows`` bodies.

    :param parts: the good rows, in order
    :param faults: errors of the others, by row
    """
    good = np.ones(rows, dtype=np.bool_)
    bad = sorted(faults)
    good[bad] = False
    parts = parts or [pa.RecordBatch.from_pylist([], schema=fields)]
    columns = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return Parsed(columns, good, tuple(_line(faults[row]) for row in bad))


def _line(error: str) -> str:
    """Limit an error to one line of bounded length."""
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


_STEP_ROWS = 4096


@attrs.frozen(slots=False)
class Rowwise:
    """A parser whose library decodes single bodies; its cached properties are not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        """The state without cached values, which are rebuilt from the schema."""
        return {each.name: getattr(self, each.name) for each in attrs.fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Any]:
        """The columns, and the converter for a value of the library."""
        raise NotImplementedError

    def _decode(self, body: bytes) -> Mapping[str, Any]:
        """The fields of a body by column; raises any error for an invalid body."""
        raise NotImplementedError

    @property
    def fields(self) -> pa.Schema:
        """A column for each field."""
        return self._columns[0]

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Parse the bodies that can be decoded."""
        faults: dict[int, str] = {}
        parts = []
        for first in range(0, len(bodies), _STEP_ROWS):
            good = []
            for row, body in enumerate(bodies[first : first + _STEP_ROWS], first):
                try:
                    good.append((row, self._decode(body.as_py())))
                except TemporaryError:  # not an error of the body
                    raise
                except Exception as error:  # a library may raise anything for arbitrary bytes
                    if raised_by_handler(error):
                        raise
                    faults[row] = _error_text(error)
            parts += _columns(good, self.fields, faults)
        return parsed(self.fields, parts, faults, len(bodies))


def _columns(
    rows: list[tuple[int, Mapping[str, Any]]], fields: pa.Schema, faults: dict[int, str]
) -> list[pa.RecordBatch]:
    """Build columns; split by halves where a value does not fit its column."""
    if not rows:
        return []
    try:
        return [pa.RecordBatch.from_pylist([values for _, values in rows], schema=fields)]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(rows) == 1:
            faults[rows[0][0]] = f"a value does not fit its column: {_error_text(error)}"
            return []
    half = len(rows) // 2
    return [*_columns(rows[:half], fields, faults), *_columns(rows[half:], fields, faults)]


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def not_utf8(bodies: pa.Array, first: int = 0) -> dict[int, str]:
    """Errors of the rows that are not UTF-8, with the place.

    They are searched by halves: an invalid row costs few passes over the others.

    :param first: the number of the first row
    """
    if len(bodies) == 1:
        try:
            bodies[0].as_py().decode()
        except UnicodeDecodeError as error:
            return {first: f"byte {error.start}: not UTF-8 ({error.reason})"}
        return {}
    is_large, half = pa.types.is_large_binary(bodies.type), len(bodies) // 2
    try:
        bodies.cast(pa.large_string() if is_large else pa.string())
    except pa.ArrowInvalid:
        return {**not_utf8(bodies[:half], first), **not_utf8(bodies[half:], first + half)}
    return {}


def without(bodies: pa.Array, faults: dict[int, str]) -> tuple[pa.Array, np.ndarray]:
    """The bodies without a fault, and their indices."""
    rows = np.delete(np.arange(len(bodies)), list(faults))
    return (bodies.take(pa.array(rows)) if faults else bodies), rows


@attrs.frozen
class Whole:
    """Bodies as they are, in one column.

    :ivar is_text: whether the column is text, so that bodies that are not UTF-8 are invalid
    """

    is_text: bool

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.string() if self.is_text else pa.binary())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Return the valid bodies."""
        faults = not_utf8(bodies) if self.is_text else {}
        good = without(bodies, faults)[0].cast(self.fields.field(0).type)
        columns = pa.RecordBatch.from_arrays([good], schema=self.fields)
        return parsed(self.fields, [columns], faults, len(bodies))


FIRST_DAY: Final = date.min.toordinal() - date(1970, 1, 1).toordinal()
LAST_DAY: Final = date.max.toordinal() - date(1970, 1, 1).toordinal()
"""Days since 1970 of the first and the last date that engines can show: years 1 to 9999."""
_DAY_US: Final = 86_400_000_000


def day(days: int) -> int:
    """Return ``days`` since 1970; raises :class:`ValueError` outside of the years 1 to 9999."""
    if not FIRST_DAY <= days <= LAST_DAY:
        raise ValueError(f"{days} days since 1970 are not in the years 1 to 9999")
    return days


def micros(us: int) -> int:
    """Return ``us`` since 1970; raises :class:`ValueError` outside of the years 1 to 9999."""
    day(us // _DAY_US)
    return us


def as_it_is(value: Any) -> Any:
    """Return ``value``; the step for a value whose type needs no conversion."""
    return value


_PREFIX: Final = "body_"
_OURS: Final = frozenset((*NAMES, ERROR, "day", "hour"))
_ODD: Final = re.compile(r"[^A-Za-z0-9_]")


def column_names(keys: Iterable[str], *, are_columns: bool) -> list[str]:
    """The names for the fields ``keys`` of a body or struct; raises :class:`ValueError`.

    :param are_columns: whether the fields become columns, beside those of messages
    """
    seen: dict[str, str] = {}
    names = []
    for key in keys:
        name = _ODD.sub("_", key) or "_"
        names.append(_PREFIX + name if are_columns and name.lower() in _OURS else name)
        other = seen.setdefault(names[-1].lower(), key)
        if other != key:
            raise ValueError(f"{other!r} and {key!r} would both be column {names[-1]}")
    return names


KEY: Final = "--body"


def refused(what: str, source: str) -> SettingsError:
    """The error for an invalid file ``source``."""
    return SettingsError(what, key=KEY, source=source)


def needs(package: str, extra: str) -> SettingsError:
    """The error for a missing ``package``."""
    return SettingsError(f"this needs {package}: pip install 'lakelog-lake[{extra}]'", key=KEY)
