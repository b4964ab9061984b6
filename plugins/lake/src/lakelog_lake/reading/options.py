"""Options of a read by Spark or DuckDB; each error, such as for an unknown one, names the option.

Limits of single columns derived from a predicate are an option as well. They are JSON, such as
``{"topic": ["a", "b"], "queue_offset": [5, null]}``: the possible values of a column, or the first
number and the exclusive end of a span. Times are in ms since 1970. Limits may admit too many rows,
as the caller filters the rows again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import attrs

from lakelog.errors import SettingsError, UnknownSetting
from lakelog.times import parse_time
from lakelog_lake.log import extent, records
from lakelog_lake.log.wanted import ALL, LAST, NumberSpan, RecordCondition

SOURCE: Final = "the options of the data source"
_SIZE: Final = re.compile(r"(\d{1,18})\s*(|[kmgt])(|b|ib)", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DIGITS: Final = re.compile(r"\d{1,18}")


def refused(key: str, message: str) -> SettingsError:
    """The error for an invalid value of an option."""
    return SettingsError(message, key=key, source=SOURCE)


def nearest(given: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or all."""
    names = list(known)
    found = get_close_matches(given, names, 1)
    return f"did you mean {found[0]!r}?" if found else f"known are {', '.join(names)}"


def word(key: str, text: str, known: Sequence[str]) -> str:
    """Parse one of some words."""
    found = text.strip().lower()
    if found not in known:
        *first, last = known
        close = get_close_matches(found, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise refused(key, f"{text!r} is neither {', '.join(first)} nor {last}{hint}")
    return found


def switch(key: str, text: str) -> bool:
    """Parse ``true`` or ``false``."""
    return word(key, text, ("true", "false")) == "true"


def names(key: str, text: str) -> frozenset[str]:
    """Parse comma-separated names."""
    found = frozenset(each.strip() for each in text.split(",") if each.strip())
    if not found:
        raise refused(key, "give at least one name, or leave the option out")
    return found


def size(key: str, text: str) -> int:
    """Parse a number of bytes, such as ``134217728``, ``128m`` or ``128MiB``."""
    found = _SIZE.fullmatch(text.strip())
    value = int(found[1]) << _SHIFTS[found[2].lower()] if found else 0
    if value < 1:
        raise refused(key, f"{text!r} is not a size above 0; write bytes, or 128m or 1GiB")
    return value


def count(key: str, text: str) -> int:
    """Parse a whole number above 0."""
    if not _DIGITS.fullmatch(text.strip()) or int(text) < 1:
        raise refused(key, f"{text!r} is not a whole number above 0")
    return int(text)


Limit: TypeAlias = "frozenset[Any] | NumberSpan"
SPANS: Final = {
    "physical_offset": "physical",
    "queue_offset": "queue_offsets",
    "store_timestamp": "times_ms",
}
SETS: Final = {"topic": "topics", "queue_id": "queue_ids", "tags": "tags"}
"""Columns with limits, and their fields of :class:`~lakelog_lake.log.wanted.RecordCondition`."""
TIME: Final = "store_timestamp"
_MICROS_PER_MS: Final = 1000


def compared(operator: str, name: str, value: int) -> dict[str, Limit]:
    """The limit of column ``name`` for a comparison (``<``, ``<=``, ``>``, ``>=``) with a number.

    Times are in µs since 1970; the ms that contains the number is included on both sides.
    """
    if name not in SPANS:
        return {}
    strict = len(operator) == 1 and name != TIME
    number = _number(name, value)
    if operator.startswith(">"):
        return {name: NumberSpan(low=min(number + strict, LAST))}
    return {name: NumberSpan(end=min(number + (not strict), LAST))}


def among(name: str, values: Sequence[Any]) -> dict[str, Limit]:
    """The limit of column ``name`` for membership in a list of constants without null."""
    if name not in {*SPANS, *SETS} or not values:
        return {}
    if name in SETS:
        return {name: frozenset(values)}
    numbers = [_number(name, each) for each in values]
    return {name: NumberSpan(min(numbers), min(max(numbers) + 1, LAST))}


def _number(name: str, value: int) -> int:
    return value // _MICROS_PER_MS if name == TIME else value


def both(one: Mapping[str, Limit], other: Mapping[str, Limit]) -> dict[str, Limit]:
    """Limits of a conjunction."""
    return {**one, **other, **_of_each(one, other, NumberSpan.both, frozenset.intersection)}


def either(one: Mapping[str, Limit], other: Mapping[str, Limit]) -> dict[str, Limit]:
    """Limits of a disjunction; a gap between two spans of numbers is included."""
    return _of_each(
        one,
        other,
        lambda left, right: NumberSpan(min(left.low, right.low), max(left.end, right.end)),
        frozenset.union,
    )


def _of_each(
    one: Mapping[str, Limit],
    other: Mapping[str, Limit],
    of_spans: Callable[[NumberSpan, NumberSpan], NumberSpan],
    of_sets: Callable[[frozenset[Any], frozenset[Any]], frozenset[Any]],
) -> dict[str, Limit]:
    """The limits of the columns that both have; a column has always the same kind of limit."""
    pairs: dict[str, Any] = {name: (one[name], other[name]) for name in one.keys() & other.keys()}
    return {n: (of_sets if n in SETS else of_spans)(*pair) for n, pair in pairs.items()}


def to_option(limits: Mapping[str, Limit]) -> str:
    """Write limits as an option of the reader."""
    return json.dumps({name: _plain(each) for name, each in limits.items()})


def _plain(limit: Limit) -> list[Any]:
    if isinstance(limit, frozenset):
        return sorted(limit)
    return [limit.low if limit.low > -LAST else None, limit.end if limit.end < LAST else None]


def limited(wanted: RecordCondition, text: str | None) -> RecordCondition:
    """Restrict ``wanted`` by limits; raises :class:`~lakelog.errors.SettingsError`."""
    if text is None:
        return wanted
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() <= {*SPANS, *SETS}:
        raise refused(
            "where",
            f"{text!r} was not written by lakelog_spark.read: call lakelog_spark.read(spark, path, "
            "where=...) with the predicate, which sets this option",
        )
    changed: dict[str, Any] = {}
    for column, values in found.items():
        if column in SPANS:
            changed[SPANS[column]] = getattr(wanted, SPANS[column]).both(_span(*values))
        else:
            held, these = getattr(wanted, SETS[column]), frozenset(values)
            changed[SETS[column]] = these if held is None else held & these
    return attrs.evolve(wanted, **changed)


_OF_CATALOG: Final = frozenset(
    ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
)
_TWICE: Final = "option."


def is_of_catalog(given: Mapping[str, str]) -> bool:
    """Whether options are those with which Spark creates a table of its catalog."""
    return any(key.lower() == "provider" for key in given)


def without_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Options without the properties of a table of Spark's catalog.

    When Spark creates one, it passes its own properties, those of ``TBLPROPERTIES``, and each
    option also as ``option.NAME``, which tells options from properties.
    """
    known = {key.lower().removeprefix(_TWICE) for key in given if key.lower().startswith(_TWICE)}
    known |= {PATH} if is_of_catalog(given) else {key.lower() for key in given} - _OF_CATALOG
    return {key: it for key, it in given.items() if key.lower() in known}


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_PLACE_KEYS: Final = ("offset", "store", "version")


@attrs.frozen
class ReadBoundary:
    """The start or end of a read; exactly one of the first four fields is given.

    :ivar word: ``earliest`` or ``latest``
    :ivar time_ms: a store time, in ms since 1970
    :ivar offset: a physical offset, in bytes
    :ivar queues: queue offsets by topic and queue id; other queues are not bounded
    :ivar store: the store that ``offset`` belongs to, if known
    """

    word: str | None = None
    time_ms: int | None = None
    offset: int | None = None
    queues: Mapping[tuple[str, int], int] | None = None
    store: str | None = None


def place(key: str, text: str) -> ReadBoundary:
    """Parse ``earliest``, ``latest``, a time as :func:`lakelog.times.parse_time`, or JSON.

    JSON is ``{"offset": BYTES}``, as in the offsets of a streaming query, or queue offsets,
    ``{"TOPIC": {"0": 12, "1": 7}}``. Raises :class:`~lakelog.errors.SettingsError`.
    """
    short = text.strip()
    if short.lower() in (EARLIEST, LATEST):
        return ReadBoundary(word=short.lower())
    if short.startswith("{"):
        return _of_json(key, text)
    try:
        return ReadBoundary(time_ms=parse_time(short))
    except ValueError as error:
        hint = f"{text!r} is not a place; {nearest(short.lower(), (EARLIEST, LATEST))}"
        raise refused(key, hint if short.isalpha() else str(error)) from None


def _of_json(key: str, text: str) -> ReadBoundary:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise refused(key, f"{text!r} is not JSON: {error}") from None
    if _is_number(found.get("offset")):
        strange = sorted(set(found) - set(_PLACE_KEYS))
        if strange:
            raise refused(key, f"{strange[0]!r} is unknown; {nearest(strange[0], _PLACE_KEYS)}")
        return ReadBoundary(offset=found["offset"], store=found.get("store"))
    queues: dict[tuple[str, int], int] = {}
    for topic, offsets in found.items():
        inner: dict[str, Any] = offsets if isinstance(offsets, dict) else {"": None}
        for queue_id, offset in inner.items():
            if not queue_id.isdigit() or not _is_number(offset):
                raise refused(
                    key,
                    f"{topic!r} has {offsets!r}; write queue offsets by queue id, "
                    '{"TOPIC": {"0": 12}}, or a place in the log, {"offset": BYTES}',
                )
            queues[topic, int(queue_id)] = offset
    if not queues:
        raise refused(key, 'it names no queue; write {"TOPIC": {"0": 12}} or {"offset": BYTES}')
    return ReadBoundary(queues=queues)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


PATH: Final = "path"
FLUSHED: Final = "flushed"
FAIL: Final = "fail"
SKIP: Final = "skip"
COLLECT: Final = "collect"
AVAILABLE_NOW: Final = "available-now"
PROCESSING_TIME: Final = "processing-time"
MAX_PARTITION_BYTES: Final = 128 << 20
DEFAULTS: Final[dict[str, str | None]] = {
    PATH: None,
    "store_id": None,
    "topics": None,
    "queues": None,
    "tags": None,
    "key": None,
    "start": EARLIEST,
    "end": LATEST,
    "until": None,
    "records": "queued",
    "system_topics": "false",
    "include": "body",
    "decompress": "true",
    "corrupt": FAIL,
    "lost": FAIL,
    "where": None,
    "max_partition_bytes": str(MAX_PARTITION_BYTES),
    "max_bytes_per_batch": None,
    "max_rows_per_batch": None,
    "trigger": AVAILABLE_NOW,
}
"""Every option with its default."""


@attrs.frozen
class ReadOptions:
    """The checked options of a read.

    :ivar path: the store directory, absolute
    :ivar archive: URL of a store's folder in an archive, instead of ``path``
    :ivar store_id: value of the column ``store``; by default the store's UUID
    :ivar wanted: the condition for records
    :ivar start: start of the read
    :ivar end: end of the read, exclusive
    :ivar until: ``flushed``: only durable records, which no crash can lose; ``readable``: all
        readable records; ``None``: ``flushed`` if the durable end is known, else ``readable``. The
        durable end is not known while RocketMQ has the store open, and after a crash of RocketMQ
    :ivar bodies: whether rows have bodies
    :ivar decompress: whether bodies are decompressed
    :ivar corrupt: at damage, ``fail`` ends the read, ``skip`` skips it with a log line,
        ``collect`` returns a row with its cause in the column ``error``
    :ivar lost: if messages after the start were deleted, ``fail`` ends the read, ``skip`` starts
        at the first existing record
    :ivar times_ms: span of the store times of ``start`` and ``end``, used to skip parts of the log.
        The times of a predicate are not used so, as its result must not depend on clocks
    :ivar max_partition_bytes: bytes of the log that one task reads
    :ivar max_bytes_per_batch: bytes of the log per batch of a streaming query, if bounded
    :ivar max_rows_per_batch: records per batch, if bounded
    :ivar trigger: the kind of trigger of the query, see :mod:`lakelog_spark.source`
    """

    path: Path
    store_id: str | None = None
    wanted: RecordCondition = RecordCondition()  # noqa: RUF009  # frozen: may be shared
    start: ReadBoundary = ReadBoundary(word=EARLIEST)  # frozen: may be shared
    end: ReadBoundary = ReadBoundary(word=LATEST)  # frozen: may be shared
    until: str | None = None
    bodies: bool = True
    decompress: bool = True
    corrupt: str = FAIL
    lost: str = FAIL
    times_ms: NumberSpan = ALL
    max_partition_bytes: int = MAX_PARTITION_BYTES
    max_bytes_per_batch: int | None = None
    max_rows_per_batch: int | None = None
    trigger: str = AVAILABLE_NOW
    archive: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check options given as text; raises :class:`~lakelog.errors.SettingsError`."""
        given = without_properties(given)
        for key in given:
            if key == "paths":
                raise refused(key, "one load reads one store: union several")
            if key not in DEFAULTS:
                hint = nearest(key, DEFAULTS)
                raise UnknownSetting(f"no such option; {hint}", key=key, source=SOURCE)
        if not given.get(PATH):
            raise refused(PATH, "name a store directory: .load('STORE')")
        option = {**DEFAULTS, **given}
        start, end = place("start", str(option["start"])), place("end", str(option["end"]))
        if end.word == EARLIEST:
            raise refused("end", "a read that ends at the earliest message is empty")
        is_remote = "://" in given[PATH].removeprefix("file:")
        return cls(
            path=_local(given[PATH]),
            archive=given[PATH] if is_remote else None,
            store_id=option["store_id"] or None,
            wanted=limited(_wanted(option, start, end), option["where"]),
            start=start,
            end=end,
            until=_parsed(option, "until", word, (FLUSHED, extent.READABLE)),
            bodies=word("include", str(option["include"]), ("body", "headers")) == "body",
            decompress=switch("decompress", str(option["decompress"])),
            corrupt=word("corrupt", str(option["corrupt"]), (FAIL, SKIP, COLLECT)),
            lost=word("lost", str(option["lost"]), (FAIL, SKIP)),
            times_ms=_span(start.time_ms, end.time_ms),
            max_partition_bytes=size("max_partition_bytes", str(option["max_partition_bytes"])),
            max_bytes_per_batch=_parsed(option, "max_bytes_per_batch", size),
            max_rows_per_batch=_parsed(option, "max_rows_per_batch", count),
            trigger=word("trigger", str(option["trigger"]), (AVAILABLE_NOW, PROCESSING_TIME)),
        )


_T = TypeVar("_T")


def _parsed(
    option: Mapping[str, str | None], key: str, parse: Callable[..., _T], *more: object
) -> _T | None:
    """The value of an option, if given."""
    text = option[key]
    return None if text is None else parse(key, text, *more)


def _local(path: str) -> Path:
    """Return an absolute path, as executors open the same directory under the same name."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).absolute()
    return Path(path).absolute()


def _wanted(
    option: Mapping[str, str | None], start: ReadBoundary, end: ReadBoundary
) -> RecordCondition:
    system = switch("system_topics", str(option["system_topics"]))
    queue_ids, queues = _queues(option["queues"])
    chosen = _parsed(option, "topics", names)
    named = chosen is not None or queues is not None
    low, high = start.queues or {}, end.queues or {}
    return RecordCondition(
        topics=chosen,
        queue_ids=queue_ids,
        queues=queues,
        times_ms=_span(start.time_ms, end.time_ms),
        physical=_span(start.offset, end.offset),
        by_queue={each: _span(low.get(each), high.get(each)) for each in {*low, *high}},
        tags=_parsed(option, "tags", lambda key, text: names(key, text.replace("||", ","))),
        key=option["key"] or None,
        unqueued=word("records", str(option["records"]), ("queued", "all")) == "all",
        system_topics=system or named,
    )


def _span(low: int | None, end: int | None) -> NumberSpan:
    return NumberSpan(-LAST if low is None else low, LAST if end is None else end)


def _queues(
    text: str | None,
) -> tuple[frozenset[int] | None, frozenset[tuple[str, int]] | None]:
    """Parse queue ids of any topic, or queues as ``TOPIC/ID``."""
    if text is None:
        return None, None
    given = names("queues", text)
    if all(each.isdigit() for each in given):
        return frozenset(map(int, given)), None
    queues = set()
    for each in sorted(given):
        topic, slash, queue_id = each.rpartition("/")
        if not slash or not topic or not queue_id.isdigit():
            raise refused("queues", f"{each!r} is not a queue; write 0,1 or TOPIC/0,TOPIC/1")
        queues.add((topic, int(queue_id)))
    return None, frozenset(queues)


def names_of(options: ReadOptions) -> tuple[str, ...]:
    """The columns of a read; without ``body`` for ``include=headers``."""
    kept = tuple(name for name in records.NAMES if options.bodies or name != "body")
    return (*kept, records.ERROR) if options.corrupt == "collect" else kept


def ddl_of(options: ReadOptions) -> str:
    """The columns of a read with their types, as Spark DDL."""
    return ", ".join(f"{name} {records.TYPES.get(name, 'string')}" for name in names_of(options))
