"""Values from RocketMQ's ``broker.conf``; unsupported keys are reported, never rejected.

Java's properties format, as ``java.util.Properties.load`` reads it.

Comments start with ``#`` or ``!``. A key ends at ``=``, ``:`` or a blank. A line that ends with a
backslash continues in the next one, whose leading blanks are dropped. The bytes are Latin-1.

Maps RocketMQ's settings to lakelog's: a table, and notes on those without a counterpart.

Names are those of ``MessageStoreConfig`` and ``BrokerConfig`` of 5.3.3, and older spellings.

RocketMQ settings that have a meaning only in combination.

A function that converts a value raises ``ValueError`` if the text has another form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs

from lakelog.errors import SettingsError
from lakelog.format.layout import COMMITLOG_DIR
from lakelog.hooks import TranslatedValue, Translation
from lakelog.hooks.kinds import StoreSettings

BLANKS: Final = " \t\f"
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_PARTS: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@attrs.frozen
class Property:
    """One key with its value.

    :ivar line: its first line in the file, counted from 1
    """

    key: str
    value: str
    line: int


def parse_properties(data: bytes, origin: str) -> dict[str, Property]:
    """All properties of a file; the last value wins if a key repeats.

    :param origin: the file, for errors
    Raises :class:`~lakelog.errors.SettingsError` for an incomplete Unicode escape.
    """
    found: dict[str, Property] = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        parts = _PARTS.fullmatch(line)
        if parts is None:  # cannot happen: every line has two parts, possibly empty
            raise SettingsError(f"line {number} is not a property", source=origin)
        key, value = (_unescaped(part, number, origin) for part in parts.groups())
        found[key] = Property(key, value, number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined with their continuations, without comments, blank lines and leading blanks."""
    pending, first = "", 0
    for number, natural in enumerate(_LINE_ENDS.split(text), start=1):
        line = natural.lstrip(BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        pending += line
        if _continues(line):
            pending = pending[:-1]
        else:
            yield first, pending
            pending = ""
    if pending:
        yield first, pending


def _continues(line: str) -> bool:
    """Whether a line ends with an unescaped backslash."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int, origin: str) -> str:
    def one(match: re.Match[str]) -> str:
        code, char = match.groups()
        if code is None and char == "u":
            what = f"line {line}: \\u needs four hexadecimal digits"
            raise SettingsError(f"{what}; write \\\\ for a backslash", source=origin)
        return chr(int(code, 16)) if code else _NAMED.get(char, char)

    plain = _ESCAPE.sub(one, text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


T = TypeVar("T")

QUEUE_ENTRY_BYTES: Final = 20
BATCH_QUEUE_ENTRY_BYTES: Final = 46


@attrs.frozen
class Rule:
    """The translation of one RocketMQ setting.

    :ivar target: lakelog's dotted key
    :ivar convert: converts its text, or returns ``None`` if the text sets nothing; raises
        ``ValueError``
    """

    target: str
    convert: Callable[[str], object]


def whole(text: str) -> int:
    """Convert ``text`` to an integer; raises ``ValueError``."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None


def truth(text: str) -> bool:
    """Convert ``text`` to a truth value; raises ``ValueError`` unless it is true or false.

    RocketMQ reads everything but ``true`` as false.
    """
    return choice({"true": True, "false": False})(text.strip().lower())


def choice(values: Mapping[str, T]) -> Callable[[str], T]:
    """Return a converter that raises ``ValueError`` for all but the given words."""

    def convert(text: str) -> T:
        if text.strip() not in values:
            raise ValueError(f"expected one of {', '.join(values)}, got {text!r}")
        return values[text.strip()]

    return convert


def units(unit_bytes: int) -> Callable[[str], int]:
    """Return a converter of a size in bytes to a count of units, rounded up as by RocketMQ."""
    return lambda text: -(-whole(text) // unit_bytes)


def padded(unit_bytes: int) -> Callable[[str], int]:
    """Return a converter that rounds a size in bytes up to whole units, in bytes."""
    return lambda text: units(unit_bytes)(text) * unit_bytes


def word(text: str) -> str:
    """``text`` without surrounding blanks."""
    return text.strip()


TABLE: Final[Mapping[str, Rule]] = {
    # the log
    "mappedFileSizeCommitLog": Rule("segment_size_bytes", whole),
    "mapedFileSizeCommitLog": Rule("segment_size_bytes", whole),
    "maxMessageSize": Rule("max_message_size_bytes", whole),
    "enabledAppendPropCRC": Rule("record_crc", truth),
    "forceVerifyPropCRC": Rule("require_record_crc", truth),
    "maxLmqConsumeQueueNum": Rule("max_light_queues", whole),
    "osPageCacheBusyTimeOutMills": Rule("os_page_cache_busy_timeout_ms", whole),
    "defaultTopicQueueNums": Rule("queues_per_topic", whole),
    # writers
    "transientStorePoolEnable": Rule("writer", choice({"true": "staged", "false": None})),
    "transientStorePoolSize": Rule("staged.pool_size", whole),
    "commitIntervalCommitLog": Rule("staged.commit_interval_ms", whole),
    "commitCommitLogLeastPages": Rule("staged.commit_least_pages", whole),
    "commitCommitLogThoroughInterval": Rule("staged.commit_thorough_interval_ms", whole),
    "warmMapedFileEnable": Rule("mmap.warm", truth),
    # flush strategies
    "flushDiskType": Rule("flush", choice({"SYNC_FLUSH": "group-commit", "ASYNC_FLUSH": "timed"})),
    "syncFlushTimeout": Rule("group-commit.sync_flush_timeout_ms", whole),
    "flushIntervalCommitLog": Rule("timed.flush_interval_ms", whole),
    "flushCommitLogLeastPages": Rule("timed.flush_least_pages", whole),
    "flushCommitLogThoroughInterval": Rule("timed.flush_thorough_interval_ms", whole),
    "flushCommitLogTimed": Rule("timed.fixed_rate", truth),
    # queues and index
    "mappedFileSizeConsumeQueue": Rule("consume-queue.file_entries", units(QUEUE_ENTRY_BYTES)),
    "mapedFileSizeConsumeQueue": Rule("consume-queue.file_entries", units(QUEUE_ENTRY_BYTES)),
    "enableConsumeQueueExt": Rule("consume-queue.ext_enabled", truth),
    "mappedFileSizeConsumeQueueExt": Rule("consume-queue.ext_file_size_bytes", whole),
    "mapperFileSizeBatchConsumeQueue": Rule(
        "consume-queue.batch_file_size_bytes", padded(BATCH_QUEUE_ENTRY_BYTES)
    ),
    "flushIntervalConsumeQueue": Rule("consume-queue.flush_interval_ms", whole),
    "flushConsumeQueueLeastPages": Rule("consume-queue.flush_least_pages", whole),
    "flushConsumeQueueThoroughInterval": Rule("consume-queue.flush_thorough_interval_ms", whole),
    "maxHashSlotNum": Rule("hash-index.slots", whole),
    "maxIndexNum": Rule("hash-index.entries", whole),
    # disk space
    "fileReservedTime": Rule("retention.file_reserved_hours", whole),
    "deleteWhen": Rule("retention.delete_when", word),
    "deleteFileBatchMax": Rule("retention.delete_files_batch_max", whole),
    "deleteCommitLogFilesInterval": Rule("retention.delete_interval_ms", whole),
    "destroyMapedFileIntervalForcibly": Rule("retention.destroy_forcibly_after_ms", whole),
    "cleanFileForciblyEnable": Rule("retention.clean_forcibly", truth),
}

NOTES: Final[Mapping[str, tuple[str, str]]] = {
    "checkCRCOnRecover": ("true", "recovery always checks every checksum"),
    "redeleteHangedFileInterval": ("120000", "deletion of a segment is retried every round"),
    "replicasPerDiskPartition": ("1", "the whole disk counts, including other users of it"),
    "messageIndexEnable": ("true", "name the dispatchers to use in `dispatchers`"),
}
"""Settings without a counterpart: the value that is not reported, and a note for other values."""

ROOT: Final = "storePathRootDir"
COMMITLOG: Final = "storePathCommitLog"
LIGHT: Final = ("enableLmq", "enableMultiDispatch")
HOST: Final = ("brokerIP1", "listenPort")
ROLE: Final = ("brokerRole", "enableControllerMode")
DISK: Final = {
    "max_used_ratio": ("diskMaxUsedSpaceRatio", 75, 10, 95),
    "clean_forcibly_ratio": ("diskSpaceCleanForciblyRatio", 85, 30, 85),
    "warning_ratio": ("diskSpaceWarningLevelRatio", 90, 35, 90),
}
"""Disk usage limits in ascending order: RocketMQ's name, default and bounds, in percent."""
COMBINED: Final = frozenset(
    {ROOT, COMMITLOG, *LIGHT, *HOST, *ROLE, *(row[0] for row in DISK.values())}
)
"""The keys that this module translates."""


@attrs.frozen
class Outcome:
    """The combined meaning of some settings.

    :ivar value: lakelog's value
    :ivar keys: the RocketMQ keys that it comes from
    """

    value: object
    keys: tuple[str, ...]


def light_queues(texts: Mapping[str, str]) -> Outcome | None:
    """Whether light queues are fed: only if both switches are on."""
    given = tuple(key for key in LIGHT if key in texts)
    on = [truth(texts[key]) for key in given]
    return Outcome(len(on) == len(LIGHT) and all(on), given) if given else None


def replica(texts: Mapping[str, str]) -> Outcome | None:
    """Whether the broker is a replica; with a controller, the file does not determine it."""
    role, controlled = texts.get(ROLE[0], "").strip(), truth(texts.get(ROLE[1], "false"))
    return Outcome(True, (ROLE[0],)) if role == "SLAVE" and not controlled else None


def store_host(texts: Mapping[str, str]) -> Outcome | None:
    """The address and port in records; missing parts take lakelog's default."""
    given = tuple(key for key in HOST if key in texts)
    default = str(attrs.fields(StoreSettings).store_host.default)
    default_ip, _, default_port = default.rpartition(":")
    ip = texts.get(HOST[0], default_ip).strip()
    port = whole(texts.get(HOST[1], default_port))
    return Outcome(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}", given) if given else None


def disk_line(texts: Mapping[str, str], line: str) -> Outcome | None:
    """One of the limits of :data:`DISK`, as a ratio.

    RocketMQ checks the highest limit first, so that a limit above the next higher one is capped by
    it.
    """
    from_here = list(DISK.values())[list(DISK).index(line) :]
    percents = {
        key: min(max(whole(texts.get(key, str(usual))), least), most)
        for key, usual, least, most in from_here
    }
    (own, usual, *_), percent = from_here[0], min(percents.values())
    if own not in texts and percent == usual:
        return None
    return Outcome(percent / 100, tuple(key for key in percents if key in texts))


def commitlog_path(texts: Mapping[str, str], path: Path) -> Outcome | None:
    """The directory of the segments, if it is not the default.

    ``path`` overrides the root directory in the file. A commit log inside that root is looked up at
    the same relative place in ``path``, so that a copy never refers to its original. A commit log
    outside the root counts only if the root is ``path``, or is not set.
    """
    text = texts.get(COMMITLOG, "").strip()
    if "," in text:
        raise ValueError("several commit log directories are not supported; keep one")
    root = texts.get(ROOT, "").strip()
    inside = _within(text, root) if text and root else None
    if not text or (inside is None and root and not same_directory(root, path)):
        return None
    place = path / inside if inside is not None else Path(text)
    usual = same_directory(place, path / COMMITLOG_DIR)
    return None if usual else Outcome(str(place), (COMMITLOG,))


def path_notes(texts: Mapping[str, str], path: Path) -> dict[str, str]:
    """Notes on paths that have no effect."""
    root, log = texts.get(ROOT, "").strip(), texts.get(COMMITLOG, "").strip()
    if not root or same_directory(root, path):
        return {}
    notes = {ROOT: f"it is {root}, and the store opened is {path}"}
    if log and _within(log, root) is None:
        notes[COMMITLOG] = f"it is {log}, of the store in {root}; set commitlog_path if it is meant"
    return notes


def same_directory(one: str | Path, other: str | Path) -> bool:
    """Whether two names resolve to one directory."""
    return os.path.realpath(one) == os.path.realpath(other)


def _within(text: str, root: str) -> Path | None:
    """``text`` relative to ``root``, or ``None`` if it is outside."""
    place, base = Path(os.path.normpath(text)), Path(os.path.normpath(root))
    return place.relative_to(base) if place.is_relative_to(base) else None


@attrs.frozen
class BrokerConf:
    """Reads ``broker.conf`` for the store in ``path``."""

    path: Path
    suffixes: tuple[str, ...] = (".conf", ".properties")

    def read(self, data: bytes, origin: str) -> Translation:
        """Translate the settings in a file's bytes.

        :param origin: the file, for errors
        Raises :class:`~lakelog.errors.SettingsError` for a value that cannot be converted.
        """
        properties = parse_properties(data, origin)
        texts = {key: found.value for key, found in properties.items()}
        values = [*_from_table(texts, origin), *_from_combined(texts, self.path, origin)]
        return Translation(tuple(values), _unmapped(texts) | path_notes(texts, self.path))

    def translate_key(self, key: str) -> str | None:
        """Lakelog's key for one of RocketMQ's keys; ``None`` if it has none."""
        rule = TABLE.get(key)
        return rule.target if rule else None


def _from_table(texts: Mapping[str, str], origin: str) -> Iterator[TranslatedValue]:
    for key in (key for key in TABLE if key in texts):
        value = _asked(partial(TABLE[key].convert, texts[key]), key, origin)
        if value is not None:
            yield TranslatedValue(TABLE[key].target, value, (key,))


def _from_combined(texts: Mapping[str, str], path: Path, origin: str) -> Iterator[TranslatedValue]:
    questions: dict[str, tuple[str, Callable[[], Outcome | None]]] = {
        "light_queues": (", ".join(LIGHT), lambda: light_queues(texts)),
        "store_host": (", ".join(HOST), lambda: store_host(texts)),
        "staged.replica": (ROLE[0], lambda: replica(texts)),
        "commitlog_path": (COMMITLOG, lambda: commitlog_path(texts, path)),
        **{
            f"psutil.{line}": (row[0], partial(disk_line, texts, line))
            # so that an invalid value is reported under its own name
            for line, row in reversed(DISK.items())
        },
    }
    for target, (names, question) in questions.items():
        outcome = _asked(question, names, origin)
        if outcome is not None:
            yield TranslatedValue(target, outcome.value, outcome.keys)


def _asked(question: Callable[[], T], key: str, origin: str) -> T:
    try:
        return question()
    except ValueError as error:
        raise SettingsError(str(error), key=key, source=origin) from error


def _unmapped(texts: Mapping[str, str]) -> dict[str, str]:
    """Notes on keys that are in no table, or whose value is not supported."""
    notes = {}
    for key, text in texts.items():
        harmless, note = NOTES.get(key, ("", "it has no meaning here"))
        if key not in TABLE and key not in COMBINED and text.strip() != harmless:
            notes[key] = note
    return notes
