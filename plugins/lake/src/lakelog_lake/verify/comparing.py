"""Compares the rows of one part of a log with those of a table, and collects what differs.

The compared values of a row take 56 bytes, for any size of its body. Values are hashed to 64 bits
per row, with NumPy over Arrow's buffers. A value of variable length is a polynomial of its
elements, modulo 2**64, computed from running sums without a loop over rows. The hashes detect
accidental differences, not deliberate collisions. Bodies, which are long, get the faster CRC-32 and
Adler-32 instead.

The result has ranges of differing rows, and counts for each queue. Adjacent ranges of one kind are
merged, in any order of their discovery. Beyond :data:`MOST_RANGES` ranges are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeAlias
from zlib import adler32

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.format import checksum, layout
from lakelog_lake.log.records import ERROR, NAMES
from lakelog_lake.tables.shape import DAY, HOUR

Words: TypeAlias = "NDArray[np.uint64]"
Longs: TypeAlias = "NDArray[np.int64]"
Facts: TypeAlias = "NDArray[np.void]"
_BASE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_NULL: Final = np.uint64(0x94D049BB133111EB)
_LEAST_BITS: Final = 20
_WHOLE: Final = frozenset({"binary", "string", "large_binary", "large_string"})
"""Types of texts and bytes."""


def of_columns(batch: pa.RecordBatch) -> Words:
    """One hash over all columns of each row."""
    total = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        total = _mixed(total * np.uint64(_BASE) + of_values(column))
    return total


def of_fields(names: Iterable[str], columns: Iterable[Any], count: int) -> Words:
    """One hash over named columns of ``count`` rows, or fields of structs, in any order.

    A null counts like a missing field: a table may have more fields than a body had.
    """
    total = np.zeros(count, np.uint64)
    for name, column in zip(names, columns, strict=True):
        seed = np.uint64(checksum.crc32(name.encode()))
        found = _mixed(of_values(column) * np.uint64(_BASE) + seed)
        total += np.where(column.is_valid().to_numpy(zero_copy_only=False), found, np.uint64(0))
    return total


def of_values(array: Any) -> Words:
    """One hash for each value of an array of any type.

    Integers, and floats, of any size have one hash for one value.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return of_values(array.cast(kind.value_type))
    if pa.types.is_map(kind):
        pairs = of_values(array.keys) * np.uint64(_BASE) + of_values(array.items)
        found = _folded(_mixed(pairs), _offsets(array))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _folded(of_values(array.values), _offsets(array))
    elif pa.types.is_struct(kind):
        found = of_fields((each.name for each in kind), array.flatten(), len(array))
    elif pa.types.is_decimal(kind):
        return of_values(array.cast(pa.string()))
    elif str(kind) in _WHOLE:
        data, offsets = _bytes(array)
        found = _folded(data.astype(np.uint64), offsets)
    else:
        found = _of_numbers(array)
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, found)
    return found


def of_bodies(array: Any) -> Words:
    """CRC-32 of each value in the low 32 bits, Adler-32 in the high ones."""
    data, offsets = _bytes(array)
    view = memoryview(data.data)
    ends = offsets.tolist()
    parts = (view[low:high] for low, high in pairwise(ends))
    found = (checksum.crc32(each) | adler32(each) << 32 for each in parts)
    return np.fromiter(found, np.uint64, len(array))


def _of_numbers(array: Any) -> Words:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz))
    if pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_floating(array.type):
        floats = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        return _mixed(np.where(np.isnan(floats), np.nan, floats).view(np.uint64))
    plain = array.cast(pa.int64()).fill_null(0)
    return _mixed(plain.to_numpy(zero_copy_only=False).view(np.uint64))


def _bytes(array: Any) -> tuple[NDArray[np.uint8], Longs]:
    """The concatenated bytes of an array of texts, and the offsets of its values."""
    wide = array.cast(pa.large_binary())
    _, places, data = wide.buffers()
    first = wide.offset
    offsets = np.frombuffer(places, np.int64)[first : first + len(wide) + 1]
    found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return found, offsets


def _offsets(array: Any) -> Longs:
    found: Longs = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _folded(elements: Words, offsets: Longs) -> Words:
    """For each run of ``elements``, mix the sum of (element + 1) * BASE**index with its length."""
    if len(offsets) < 2:
        return np.zeros(0, np.uint64)
    low, end = int(offsets[0]), int(offsets[-1])
    powers, inverses = _powers(_BASE, end - low + 1), _powers(_INVERSE, end - low + 1)
    sums = np.zeros(end - low + 1, np.uint64)
    np.cumsum((elements[low:end] + np.uint64(1)) * powers[:-1], out=sums[1:])
    starts, ends = offsets[:-1] - low, offsets[1:] - low
    lengths = (ends - starts).astype(np.uint64)
    return _mixed((sums[ends] - sums[starts]) * inverses[starts] + lengths * _MIX)


def _powers(base: int, count: int) -> Words:
    """BASE**0 and following powers, cached for a few sizes."""
    return _many_powers(base, max(count.bit_length(), _LEAST_BITS))[:count]


@lru_cache(maxsize=6)
def _many_powers(base: int, bits: int) -> Words:
    found = np.full(1 << bits, np.uint64(base))
    found[0] = 1
    np.cumprod(found, out=found)
    found.flags.writeable = False
    return found


def _mixed(words: Words) -> Words:
    """Mix the bits of each word, so that small differences affect all bits."""
    words = words ^ (words >> np.uint64(30))
    words = words * _MIX
    return words ^ (words >> np.uint64(27))


FACT: Final = np.dtype(
    [
        ("at", np.int64),  # physical offset
        ("offset", np.int64),  # queue offset
        ("takes", np.int32),  # number of queue offsets
        ("queue", np.int32),  # number of its topic and queue id, see Queues
        ("body", np.uint64),
        ("rest", np.uint64),  # all other columns of messages
        ("parsed", np.uint64),  # the columns of its body, or UNPARSED
        ("bad_crc", np.bool_),  # whether the body does not match its checksum
    ],
    align=True,
)
NO_BODY: Final = np.uint64((1 << 64) - 1)
UNPARSED: Final = NO_BODY
"""In place of the columns of a body: it is not known what they should be."""
OWN: Final = frozenset({"store", "topic", "queue_id", "queue_offset", "physical_offset", "body"})
"""Columns of the key, and others that are compared by themselves."""


@attrs.define
class Queues:
    """Numbers queues (topic and queue id) in order of appearance."""

    names: list[tuple[str, int]] = attrs.field(factory=list)
    _numbers: dict[tuple[str, int], int] = attrs.field(factory=dict)

    def numbers(self, topics: Any, queue_ids: Any) -> NDArray[np.int32]:
        """The number of the queue of each row, given two Arrow arrays."""
        coded = topics.cast(pa.string()).dictionary_encode()
        known = coded.dictionary.to_pylist()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        ids = queue_ids.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        both = np.stack([codes, ids])
        pairs, places = np.unique(both, axis=1, return_inverse=True)
        mine = [
            self.number(known[code] if code >= 0 else "", queue_id)
            for code, queue_id in pairs.T.tolist()
        ]
        return np.array(mine, np.int32)[places.reshape(-1)]

    def number(self, topic: str, queue_id: int) -> int:
        """The number of one queue."""
        found = self._numbers.setdefault((topic, queue_id), len(self.names))
        if found == len(self.names):
            self.names.append((topic, queue_id))
        return found


def compared(columns: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of lakelog that a table has, in lakelog's order.

    :param columns: types by name; parsed bodies cannot be compared and are left out
    """
    is_whole = columns.get("body") in _WHOLE
    return tuple(name for name in NAMES if name in columns and (name != "body" or is_whole))


def has_parsed(columns: Iterable[str]) -> bool:
    """Whether there are columns of parsed bodies; their rows may have no body."""
    return bool(set(columns) - {*NAMES, DAY, HOUR, ERROR})


def facts_of(batch: pa.RecordBatch, queues: Queues, parsed: Words) -> Facts:
    """Compute the compared values of each row.

    :param batch: with the columns of the key, and any others of lakelog's
    :param parsed: one hash over the columns of each body, or :data:`UNPARSED`
    """
    facts = np.zeros(batch.num_rows, FACT)
    if not batch.num_rows:
        return facts
    facts["at"] = _longs(batch, "physical_offset")
    facts["offset"] = _longs(batch, "queue_offset")
    facts["queue"] = queues.numbers(batch.column("topic"), batch.column("queue_id"))
    facts["takes"] = _takes(batch)
    others = [name for name in batch.schema.names if name not in OWN]
    facts["rest"] = of_columns(batch.select(others))
    facts["parsed"] = parsed
    if "body" in batch.schema.names:
        facts["body"] = of_bodies(batch.column("body"))
        lacking = batch.column("body").is_null().to_numpy(zero_copy_only=False)
        facts["bad_crc"] = _has_bad_crc(batch, facts["body"]) & ~lacking
        facts["body"][lacking] = NO_BODY
    return facts


def _longs(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    column = batch.column(name).cast(pa.int64()).fill_null(-1)
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _has_bad_crc(batch: pa.RecordBatch, bodies: Words) -> NDArray[np.bool_]:
    """Compare with the checksum of the stored body; it is not known of a body that was unpacked."""
    if not {"body_crc", "sys_flag"} <= set(batch.schema.names):
        return np.zeros(batch.num_rows, np.bool_)
    is_bad = (bodies.astype(np.int64) & checksum.CRC31_MASK) != _longs(batch, "body_crc")
    found: NDArray[np.bool_] = is_bad & ((_longs(batch, "sys_flag") & layout.COMPRESSED) == 0)
    return found


def _takes(batch: pa.RecordBatch) -> NDArray[np.int32]:
    """The number of queue offsets of each row: 1, except for batches."""
    takes = np.ones(batch.num_rows, np.int32)
    if not {"sys_flag", "properties"} <= set(batch.schema.names):
        return takes
    inner = np.flatnonzero(_longs(batch, "sys_flag") & layout.INNER_BATCH)
    if len(inner):
        stated = pc.map_lookup(batch.column("properties").take(inner), "INNER_NUM", "last")
        counts = [each if each and each.isdigit() else "1" for each in stated.to_pylist()]
        takes[inner] = np.array(counts).astype(np.int32)
    return takes


MISSING: Final = "missing"
EXTRA: Final = "extra"
AHEAD: Final = "ahead"
DOUBLED: Final = "doubled"
BODY: Final = "body"
COLUMNS: Final = "columns"
PARSED: Final = "parsed"
PLACE: Final = "place"
CRC: Final = "crc"
GAP: Final = "gap"
MEANINGS: Final = {
    MISSING: "in the log before the table's position, but not in the table",
    EXTRA: "in the table, but not in the log",
    AHEAD: "in the table behind its position",
    DOUBLED: "more than once in the table",
    PLACE: "in another queue, or at another queue offset, than in the log",
    BODY: "with another body than in the log",
    COLUMNS: "with another value than in the log in a column that is not the body",
    PARSED: "with another value than the body has in a column of parsed bodies",
    CRC: "with a body that does not match its checksum; no longer in the log",
    GAP: "queue offsets without a row; no longer in the log",
}
"""The kinds that count as differences; a gap does not, as there is nothing to compare it with."""
MOST_RANGES: Final = 1000


@attrs.define
class Range:
    """Adjacent rows of one queue with the same kind of difference.

    :ivar queue: number of the queue
    :ivar first: queue offset of the first row
    :ivar last: queue offset of the last row
    :ivar start: physical offset of the first row
    :ivar end: physical offset of the last row
    """

    kind: str
    queue: int
    first: int
    last: int
    start: int
    end: int
    rows: int

    def takes(self, other: Range) -> bool:
        """Merge ``other`` into this range if they are adjacent; return whether that was done."""
        touches = other.first <= self.last + 1 and other.last >= self.first - 1
        if touches:
            self.first, self.last = min(self.first, other.first), max(self.last, other.last)
            self.start, self.end = min(self.start, other.start), max(self.end, other.end)
            self.rows += other.rows
        return touches


@attrs.define
class Tally:
    """Counts of one queue.

    :ivar log: records that should be rows
    :ivar table: rows that were compared
    :ivar older: rows of messages deleted from the log
    :ivar gaps: missing queue offsets between rows
    :ivar kinds: rows by kind of difference
    """

    log: int = 0
    table: int = 0
    older: int = 0
    gaps: int = 0
    kinds: dict[str, int] = attrs.field(factory=dict)


@attrs.define
class Differences:
    """Collects counts and ranges.

    :ivar unparsed: rows whose columns of bodies were not compared
    :ivar not_listed: ranges that are only counted
    """

    tallies: dict[int, Tally] = attrs.field(factory=dict)
    ranges: list[Range] = attrs.field(factory=list)
    unparsed: int = 0
    not_listed: int = 0
    _last: dict[tuple[str, int], Range] = attrs.field(factory=dict)

    @property
    def rows(self) -> int:
        """The number of differing rows."""
        return sum(
            count
            for tally in self.tallies.values()
            for kind, count in tally.kinds.items()
            if kind != GAP
        )

    def of(self, queue: int) -> Tally:
        """The counts of a queue."""
        return self.tallies.setdefault(queue, Tally())

    def count(self, which: str, facts: Facts) -> None:
        """Add the number of rows of each queue to its ``log``, ``table`` or ``older``."""
        queues, counts = np.unique(facts["queue"], return_counts=True)
        for queue, rows in zip(queues.tolist(), counts.tolist(), strict=True):
            tally = self.of(queue)
            setattr(tally, which, getattr(tally, which) + rows)

    def add(self, kind: str, facts: Facts) -> None:
        """Add differing rows, to counts and ranges."""
        if not len(facts):
            return
        order = np.lexsort((facts["at"], facts["offset"], facts["queue"]))
        rows = facts[order]
        jumps = np.diff(rows["offset"]) > rows["takes"][:-1]
        cuts = np.flatnonzero((np.diff(rows["queue"]) != 0) | jumps) + 1
        for run in np.split(rows, cuts):
            queue, first = int(run["queue"][0]), int(run["offset"][0])
            last = int((run["offset"] + np.maximum(run["takes"], 1)).max()) - 1
            start, end = int(run["at"].min()), int(run["at"].max())
            self.add_range(Range(kind, queue, first, last, start, end, len(run)))

    def add_range(self, found: Range) -> None:
        """Add one range; its rows need not be counted yet."""
        tally = self.of(found.queue)
        tally.kinds[found.kind] = tally.kinds.get(found.kind, 0) + found.rows
        last = self._last.get((found.kind, found.queue))
        if last is not None and last.takes(found):
            return
        if len(self.ranges) >= MOST_RANGES:
            self.not_listed += 1
            return
        self.ranges.append(found)
        self._last[found.kind, found.queue] = found

    def each(self) -> Iterator[Range]:
        """The ranges, by kind and in log order."""
        kinds = list(MEANINGS)
        yield from sorted(self.ranges, key=lambda each: (kinds.index(each.kind), each.start))


@attrs.frozen
class VerifiableEnds:
    """The bounds of a comparison, in bytes of the log.

    :ivar low: start of the log
    :ivar end: position of the table before its rows were read
    :ivar landed: its position afterwards, as dispatchers may have committed meanwhile
    """

    low: int
    end: int
    landed: int


@attrs.define
class Comparison:
    """Compares a log and a table part by part, in log order.

    :ivar bodies_may_lack: whether rows without a body are valid, as their body was parsed
    """

    limits: VerifiableEnds
    bodies_may_lack: bool = False
    found: Differences = attrs.field(factory=Differences)
    _next: dict[int, int] = attrs.field(factory=dict)

    def part(self, log: Facts, table: Facts) -> None:
        """Compare one part, given all of its rows in any order."""
        # Those that landed while the table was read may be incomplete.
        recent = (table["at"] >= self.limits.end) & (table["at"] < self.limits.landed)
        table = _sorted(table[~recent])
        again = np.zeros(len(table), np.bool_)
        again[1:] = table["at"][1:] == table["at"][:-1]
        self.found.add(DOUBLED, table[again])
        rows = table[~again]
        self._gaps(rows)
        older = self._is_older(rows)
        ahead = rows["at"] >= self.limits.end
        self.found.count("older", rows[older])
        self.found.add(CRC, rows[older & rows["bad_crc"]])
        self.found.add(AHEAD, rows[ahead])
        self.found.count("table", table[~self._is_older(table)])
        self._both(_sorted(log), rows[~older & ~ahead])

    def _is_older(self, rows: Facts) -> NDArray[np.bool_]:
        """Rows of messages deleted from the log; a row without a place was never in it."""
        found: NDArray[np.bool_] = (rows["at"] >= 0) & (rows["at"] < self.limits.low)
        return found

    def _both(self, log: Facts, rows: Facts) -> None:
        self.found.count("log", log)
        _, in_log, in_rows = np.intersect1d(
            log["at"], rows["at"], assume_unique=True, return_indices=True
        )
        self.found.add(MISSING, _without(log, in_log))
        self.found.add(EXTRA, _without(rows, in_rows))
        left, right = log[in_log], rows[in_rows]
        moved = (left["queue"] != right["queue"]) | (left["offset"] != right["offset"])
        self.found.add(PLACE, right[moved])
        altered = left["body"] != right["body"]
        if self.bodies_may_lack:
            altered &= right["body"] != NO_BODY
        self.found.add(BODY, left[altered])
        self.found.add(COLUMNS, left[left["rest"] != right["rest"]])
        is_typed = right["parsed"] != UNPARSED  # else it is a dead letter
        is_known = left["parsed"] != UNPARSED
        self.found.add(PARSED, left[is_typed & is_known & (left["parsed"] != right["parsed"])])
        lacks_body = right["body"] == NO_BODY if self.bodies_may_lack else np.False_
        self.found.unparsed += int(np.count_nonzero(is_typed & ~is_known & lacks_body))

    def _gaps(self, rows: Facts) -> None:
        """Report queue offsets without a row between two offsets with rows.

        :param rows: rows in log order; offsets of a deleted queue may start again at 0
        """
        ordered = rows[np.argsort(rows["queue"], kind="stable")]
        cuts = np.flatnonzero(np.diff(ordered["queue"])) + 1
        for run in np.split(ordered, cuts) if len(ordered) else ():
            queue = int(run["queue"][0])
            ends = run["offset"] + run["takes"]
            first = self._next.get(queue, int(run["offset"][0]))
            wanted = np.concatenate([[first], ends[:-1]])
            self._next[queue] = int(ends[-1])
            gaps = np.maximum(run["offset"] - wanted, 0)
            self.found.of(queue).gaps += int(gaps.sum())
            for at in np.flatnonzero((gaps > 0) & (run["at"] < self.limits.low)).tolist():
                place, low, end = int(run["at"][at]), int(wanted[at]), int(run["offset"][at])
                self.found.add_range(Range(GAP, queue, low, end - 1, place, place, end - low))


def _sorted(facts: Facts) -> Facts:
    return facts[np.argsort(facts["at"], kind="stable")]


def _without(facts: Facts, places: Longs) -> Facts:
    left = np.ones(len(facts), np.bool_)
    left[places] = False
    return facts[left]
