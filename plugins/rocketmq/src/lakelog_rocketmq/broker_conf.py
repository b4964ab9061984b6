"""Values from RocketMQ's ``broker.conf``; unsupported keys are reported, never rejected.

The format is that of ``java.util.Properties.load``: comments start with ``#`` or ``!``. A key ends
at ``=``, ``:`` or a blank. A line that ends with a backslash continues in the next one, whose
leading blanks are dropped. The bytes are Latin-1.

The names are those of ``MessageStoreConfig`` and ``BrokerConfig`` of 5.3.3, and older spellings.
``TABLE`` has the settings that lakelog has, too, and ``NOTES`` those without a counterpart; the
functions behind them read settings that have a meaning only in combination. A function that
converts a value raises ``ValueError`` if the text has another form.
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


def parse_properties(data: bytes, origin: str) -> dict[str, str]:
    """The values of a file by key; the last value wins if a key repeats.

    :param origin: the file, for errors

    Raises :class:`~lakelog.errors.SettingsError` for an incomplete Unicode escape.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        parts = _PARTS.fullmatch(line)
        assert parts is not None, "every line has two parts, possibly empty"
        key, value = (_unescaped(part, number, origin) for part in parts.groups())
        found[key] = value
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
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:  # an unescaped backslash
            pending = pending[:-1]
        else:
            yield first, pending
            pending = ""
    if pending:
        yield first, pending


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
    "deleteWhen": Rule("retention.delete_when", str.strip),
    "deleteFileBatchMax": Rule("retention.delete_files_batch_max", whole),
    "deleteCommitLogFilesInterval": Rule("retention.delete_interval_ms", whole),
    "cleanFileForciblyEnable": Rule("retention.clean_forcibly", truth),
}

NOTES: Final[Mapping[str, tuple[str, str]]] = {
    "checkCRCOnRecover": ("true", "recovery always checks every checksum"),
    "destroyMapedFileIntervalForcibly": ("120000", "a deletion waits for no reader"),
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


def light_queues(texts: Mapping[str, str]) -> TranslatedValue | None:
    """Whether light queues are fed: only if both switches are on."""
    given = tuple(key for key in LIGHT if key in texts)
    on = [truth(texts[key]) for key in given]
    both = len(on) == len(LIGHT) and all(on)
    return TranslatedValue("light_queues", both, given) if given else None


def replica(texts: Mapping[str, str]) -> TranslatedValue | None:
    """Whether the broker is a replica; with a controller, the file does not determine it."""
    role, controlled = texts.get(ROLE[0], "").strip(), truth(texts.get(ROLE[1], "false"))
    if role != "SLAVE" or controlled:
        return None
    return TranslatedValue("staged.replica", True, (ROLE[0],))


def store_host(texts: Mapping[str, str]) -> TranslatedValue | None:
    """The address and port in records; missing parts take lakelog's default."""
    given = tuple(key for key in HOST if key in texts)
    default = str(attrs.fields(StoreSettings).store_host.default)
    default_ip, _, default_port = default.rpartition(":")
    ip = texts.get(HOST[0], default_ip).strip()
    port = whole(texts.get(HOST[1], default_port))
    address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return TranslatedValue("store_host", address, given) if given else None


def disk_line(texts: Mapping[str, str], line: str) -> TranslatedValue | None:
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
    given = tuple(key for key in percents if key in texts)
    return TranslatedValue(f"psutil.{line}", percent / 100, given)


def commitlog_path(texts: Mapping[str, str], path: Path) -> TranslatedValue | None:
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
    return None if usual else TranslatedValue("commitlog_path", str(place), (COMMITLOG,))


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
        texts = parse_properties(data, origin)
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
    questions: list[tuple[str, Callable[[], TranslatedValue | None]]] = [
        (", ".join(LIGHT), partial(light_queues, texts)),
        (", ".join(HOST), partial(store_host, texts)),
        (ROLE[0], partial(replica, texts)),
        (COMMITLOG, partial(commitlog_path, texts, path)),
        # from the last one on, so that an invalid value is reported under its own name
        *((row[0], partial(disk_line, texts, line)) for line, row in reversed(DISK.items())),
    ]
    yield from filter(None, (_asked(question, names, origin) for names, question in questions))


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
