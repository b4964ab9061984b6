"""RocketMQ's JSON files of ``config/``: topics, groups, and the offsets of groups and delay levels.

RocketMQ writes a file in place without a sync, so that it may be torn. It then reads the ``.bak``,
which holds the former content. lakelog does the same, and logs a warning. Files that lakelog writes
are never torn: first the ``.bak``, then the file is replaced by a rename.

Each entry of a table is read by itself. One that cannot be read is reported once and kept as it is,
and stops no other entry from being read or saved.

Sources: RocketMQ 5.3.3, ``TopicConfigManager``, ``SubscriptionGroupManager``,
``ConsumerOffsetManager``, ``ScheduleMessageService``, and the defaults of ``TopicConfig`` and
``SubscriptionGroupConfig``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, read_file, unreadable, write_file
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.fastjson import encode_file, has_bare_keys, parse_object

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS_FILE: Final = "consumerOffset.json"
DELAY_OFFSETS_FILE: Final = "delayOffset.json"
_BACKUP: Final = ".bak"
_LOG: Final = logging.getLogger("lakelog")
_MOST_KEY: Final = (1 << 31) - 1
_MOST_NUMBER: Final = (1 << 63) - 1
Read = TypeVar("Read")
Entry = TypeVar("Entry")
Content: TypeAlias = Mapping[str, Any]
"""The object in a file."""


@attrs.frozen
class Loaded(Generic[Read]):
    """The content of a file of ``config/``.

    :ivar value: the parsed content; that of an empty object if neither file exists
    :ivar content: the whole content, including keys unknown to lakelog
    """

    value: Read
    content: dict[str, Any]


_reported: Final[set[tuple[Path, str]]] = set()


@attrs.frozen
class Table(Generic[Entry]):
    """A table in a file of ``config/``, whose entries are read one by one.

    :ivar file: the name of the file
    :ivar name: the key of the table in the file's object
    :ivar read_entry: reads an entry from its name and its value; raises ``ValueError``,
        ``TypeError`` or ``AttributeError`` for one that cannot be read
    :ivar read_odd: returns the parts of a readable entry that cannot be read
    """

    file: str
    name: str
    read_entry: Callable[[str, Any], Entry]
    read_odd: Callable[[str, Any], Content] = lambda _name, _found: {}

    def load(self, files: FileSystem, path: Path) -> Loaded[dict[str, Entry]]:
        """Load the table of the store directory ``path``; raises as :func:`load_config`."""
        file = path / CONFIG_DIR / self.file
        loaded = load_config(files, file, self.read)
        for name, value in self.odd(loaded.content).items():
            problem = f"{self.name}[{name!r}] is {value!r}"[:200]
            if (file, problem) not in _reported:
                _reported.add((file, problem))
                _LOG.warning("%s: %s, which cannot be read; it is kept as it is", file, problem)
        return loaded

    def read(self, content: Content) -> dict[str, Entry]:
        """The entries that can be read; raises ``ValueError`` if the table is no map."""
        return self._split(content)[0]

    def odd(self, content: Content) -> dict[str, Any]:
        """The entries, or the parts of them, that cannot be read; by name."""
        return self._split(content)[1]

    def with_odd(self, former: Content, table: Mapping[str, Any]) -> dict[str, Any]:
        """A table to be saved: ``table``, with what cannot be read in the ``former`` content."""
        kept = dict(table)
        for name, value in self.odd(former).items():
            if name not in kept:
                kept[name] = value
            elif isinstance(value, Mapping) and isinstance(kept[name], Mapping):
                kept[name] = {**value, **kept[name]}
        return kept

    def _split(self, content: Content) -> tuple[dict[str, Entry], dict[str, Any]]:
        found: dict[str, Entry] = {}
        odd: dict[str, Any] = {}
        for name, value in object_table(content, self.name).items():
            try:
                found[name] = self.read_entry(name, value)
                if parts := self.read_odd(name, value):
                    odd[name] = parts
            except (ValueError, TypeError, AttributeError):
                odd[name] = value
        return found, odd


def load_config(files: FileSystem, path: Path, read: Callable[[Content], Read]) -> Loaded[Read]:
    """Read a file, or else its ``.bak``, as RocketMQ does.

    :param read: converts the content to a value; raises ``ValueError`` if it cannot

    Raises :class:`~lakelog.errors.CorruptConfig` if a file exists but none can be parsed, and
    :class:`~lakelog.errors.StoreError` if the system refuses to read it.
    """
    problems: list[str] = []
    for each in (path, backup_of(path)):
        data = _content(files, each, problems)
        if data:
            try:
                content = parse_object(data)
                loaded = Loaded(read(content), content)
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(f"{each.name} ({len(data)} bytes) cannot be read: {error}")
            else:
                if problems:
                    backup = backup_of(path).name
                    _LOG.warning("%s: %s; using %s", path, "; ".join(problems), backup)
                return loaded
    if problems:
        raise CorruptConfig(
            f"{'; '.join(problems)}. Restore a sound copy, or move both files away to begin anew",
            path=path,
        )
    return Loaded(read({}), {})


def _content(files: FileSystem, path: Path, problems: list[str]) -> bytes | None:
    try:
        data = read_file(files, path)
    except OSError as error:
        raise unreadable(path, error) from error
    if data == b"":
        problems.append(f"{path.name} is empty")
    elif data is None and not path.name.endswith(_BACKUP):
        # Report it only if the .bak exists: then the file was lost.
        with suppress(OSError):
            if read_file(files, backup_of(path)) is not None:
                problems.append(f"{path.name} is missing")
    return data


def save_config(files: FileSystem, path: Path, content: Content) -> None:
    """Replace a file durably.

    Integer keys have quotes, so that each program can read the file, unless those of the former
    file have none, as RocketMQ writes them.

    Valid former content is saved as the ``.bak`` first. A crash at any time leaves a readable file,
    with the former or the new content. After an ``OSError``, at most the ``.bak`` was replaced.
    """
    files.make_dir(path.parent)
    former = read_file(files, path) or b""
    with suppress(ValueError):  # a torn file must not replace a valid .bak
        parse_object(former)
        write_file(files, backup_of(path), former, syncs_name=False)
    write_file(files, path, encode_file(content, bare_keys=has_bare_keys(former)))


def backup_of(path: Path) -> Path:
    """The path of the ``.bak`` of a file."""
    return path.with_name(path.name + _BACKUP)


def _integer(key: str, value: object) -> tuple[int, int]:
    """An entry of integers of 32 and 64 bits; raises ``ValueError`` for anything else."""
    number = int(key)
    if type(value) is not int or abs(number) > _MOST_KEY or abs(value) > _MOST_NUMBER:
        raise ValueError(f"{key}: {value!r} is no pair of integers")
    return number, value


def object_table(content: Content, name: str) -> dict[str, Any]:
    """The map under ``name``; empty if it is missing or null.

    Raises ``ValueError`` if the value is no map.
    """
    found = content.get(name)
    return {} if found is None else dict(_map(found, name))


def _map(found: object, where: str) -> Content:
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} is {type(found).__name__}, not a map")
    return found


def _save(
    files: FileSystem, path: Path, former: Content, now_ms: int, changed: Content
) -> dict[str, Any]:
    """Replace a file; keep what is not ``changed``, and increment RocketMQ's ``DataVersion``."""
    version = former.get("dataVersion")
    known = dict(version) if isinstance(version, Mapping) else {}
    counter = known.get("counter")
    next_version = {
        "stateVersion": 0,
        **known,
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "timestamp": now_ms,
    }
    content = _in_order({**former, "dataVersion": _in_order(next_version), **changed})
    save_config(files, path, content)
    return content


def _in_order(fields: Content) -> dict[str, Any]:
    """The fields of one of RocketMQ's objects by name, as fastjson writes them."""
    return dict(sorted(fields.items()))


def _sorted(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(key): offsets[key] for key in sorted(offsets)}


# --- topics ---

_DEFAULT_QUEUES: Final = 16
_READ_AND_WRITE: Final = 6
_TOPICS: Final = "topicConfigTable"
_NEW_TOPIC: Final = {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
"""The settings that RocketMQ writes for a new topic, and lakelog does not use."""


@attrs.frozen
class TopicConfig:
    """The configuration of one topic.

    :ivar read_queues: number of queues for consumers
    :ivar write_queues: number of queues for producers
    :ivar permission: sum of 4 (read), 2 (write) and 1 (inherit)
    :ivar attributes: names and values, such as ``queue.type``
    """

    topic: str
    read_queues: int = _DEFAULT_QUEUES
    write_queues: int = _DEFAULT_QUEUES
    permission: int = _READ_AND_WRITE
    attributes: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def queue_count(self) -> int:
        """Number of queues that can be read or written."""
        return max(self.read_queues, self.write_queues)


def _topic(topic: str, found: Content) -> TopicConfig:
    return TopicConfig(
        topic,
        int(found.get("readQueueNums", _DEFAULT_QUEUES)),
        int(found.get("writeQueueNums", _DEFAULT_QUEUES)),
        int(found.get("perm", _READ_AND_WRITE)),
        _attributes(found),
    )


def _attributes(found: Content) -> dict[str, str]:
    return {str(name): str(value) for name, value in object_table(found, "attributes").items()}


TOPICS: Final = Table(TOPICS_FILE, _TOPICS, _topic)


def load_topics(files: FileSystem, path: Path) -> Loaded[dict[str, TopicConfig]]:
    """Load the topics of the store directory ``path``; raises ``CorruptConfig``."""
    return TOPICS.load(files, path)


def save_topics(
    files: FileSystem, path: Path, former: Content, topics: Mapping[str, TopicConfig], now_ms: int
) -> None:
    """Replace the file durably; RocketMQ reads it when it starts.

    :param former: the former content; its unknown keys are kept, also those of each topic
    :param topics: all topics, by name
    :param now_ms: the time for ``dataVersion``, in ms since 1970

    Raises ``OSError`` if the file cannot be written.
    """
    known = object_table(former, _TOPICS)
    table = {
        name: _in_order(
            {
                **_former(known, name, _NEW_TOPIC),
                "attributes": dict(each.attributes),
                "perm": each.permission,
                "readQueueNums": each.read_queues,
                "topicName": each.topic,
                "writeQueueNums": each.write_queues,
            }
        )
        for name, each in topics.items()
    }
    changed = {_TOPICS: TOPICS.with_odd(former, table)}
    _save(files, path / CONFIG_DIR / TOPICS_FILE, former, now_ms, changed)


def _former(known: Content, name: str, new: Content) -> Content:
    """The entry ``name`` of a table, or else a new one."""
    found = known.get(name)
    return found if isinstance(found, Mapping) else new


# --- groups ---

MAX_RETRIES: Final = 16
_GROUPS: Final = "subscriptionGroupTable"
_RETRIES: Final = "retryMaxTimes"
_ORDERED: Final = "consumeMessageOrderly"
_SUBSCRIPTIONS: Final = "subscriptionDataSet"
_NEW_GROUP: Final = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    _ORDERED: False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""The settings that RocketMQ writes for a new group, and lakelog does not use."""


@attrs.frozen
class GroupConfig:
    """The configuration of one consumer group.

    :ivar max_retries: number of times a message is handed out again before it is a dead letter
    :ivar is_ordered: whether members that pop get the messages of a queue in order
    :ivar attributes: names and values, such as ``lite.bind.topic``; as read from the file
    """

    group: str
    max_retries: int = MAX_RETRIES
    is_ordered: bool = False
    attributes: Mapping[str, str] = attrs.field(factory=dict)


def _group(group: str, found: Content) -> GroupConfig:
    retries = int(found.get(_RETRIES, MAX_RETRIES))
    return GroupConfig(group, retries, bool(found.get(_ORDERED, False)), _attributes(found))


GROUPS: Final = Table(GROUPS_FILE, _GROUPS, _group)


def load_groups(files: FileSystem, path: Path) -> Loaded[dict[str, GroupConfig]]:
    """Load the groups of the store directory ``path``; raises ``CorruptConfig``."""
    return GROUPS.load(files, path)


def settings_of(content: Content, group: str) -> dict[str, Any]:
    """All settings of a group in a file's content, in RocketMQ's names; defaults if it has none."""
    found = _former(object_table(content, _GROUPS), group, {})
    return _in_order({**_NEW_GROUP, _RETRIES: MAX_RETRIES, "groupName": group, **found})


def with_settings(content: Content, group: str, settings: Content) -> dict[str, Any]:
    """A file's content with changed settings of a group; other groups stay.

    Settings of unknown names, and those that are ``None``, are left out. Raises ``ValueError`` for
    a setting of another type than its default.
    """
    known = settings_of(content, group)
    changed = {
        name: value
        for name, value in settings.items()
        if value is not None and name in {*known, _SUBSCRIPTIONS}
    }
    for name, value in changed.items():
        if name in known and type(value) is not type(known[name]):
            kind = type(known[name]).__name__
            raise ValueError(f"{name} of the group {group} is {value!r}; it must be of type {kind}")
    table = {**object_table(content, _GROUPS), group: {**known, **changed, "groupName": group}}
    return {**content, _GROUPS: table}


def save_groups(
    files: FileSystem, path: Path, former: Content, groups: Mapping[str, GroupConfig], now_ms: int
) -> None:
    """Replace the file durably; arguments as those of ``save_topics``.

    Raises ``OSError`` if the file cannot be written.
    """
    known = object_table(former, _GROUPS)
    table = {
        name: _in_order(
            {
                **_former(known, name, _NEW_GROUP),
                "groupName": name,
                _RETRIES: each.max_retries,
                _ORDERED: each.is_ordered,
            }
        )
        for name, each in groups.items()
    }
    former = {"forbiddenTable": {}, **former}
    changed = {_GROUPS: GROUPS.with_odd(former, table)}
    _save(files, path / CONFIG_DIR / GROUPS_FILE, former, now_ms, changed)


# --- next offsets of groups ---

SEPARATOR: Final = "@"
_OFFSETS: Final = "offsetTable"

Offsets: TypeAlias = dict[str, dict[int, int]]
"""Next queue offset to read, by ``TOPIC@GROUP`` and queue id; a negative one counts as none."""


def _numbers(_name: str, found: object) -> dict[int, int]:
    entries = _map(found, "the entry").items()
    return dict(_integer(*each) for each in entries if _is_pair(*each))


def _odd_numbers(_name: str, found: Content) -> dict[str, Any]:
    return {key: value for key, value in found.items() if not _is_pair(key, value)}


def _is_pair(key: str, value: object) -> bool:
    try:
        _integer(key, value)
    except ValueError:
        return False
    return True


OFFSETS: Final = Table(CONSUMER_OFFSETS_FILE, _OFFSETS, _numbers, _odd_numbers)


def load_offsets(files: FileSystem, path: Path) -> Loaded[Offsets]:
    """Load the offsets of the store directory ``path``; raises ``CorruptConfig``."""
    return OFFSETS.load(files, path)


def save_offsets(
    files: FileSystem, path: Path, former: Content, offsets: Offsets, now_ms: int
) -> dict[str, Any]:
    """Replace the file durably; returns its new content.

    :param former: the former content; its unknown keys are kept
    :param now_ms: the time for ``dataVersion``, in ms since 1970

    Raises ``OSError`` if the file cannot be written.
    """
    topics: dict[str, list[str]] = {}
    for split in filter(None, map(split_name, offsets)):
        topics.setdefault(split[1], []).append(split[0])
    table = {name: _sorted(each) for name, each in offsets.items()}
    changed = {
        "groupTopicMap": topics,  # informative only: it follows from the table
        _OFFSETS: OFFSETS.with_odd(former, table),
    }
    return _save(files, path / CONFIG_DIR / CONSUMER_OFFSETS_FILE, former, now_ms, changed)


def split_name(name: str) -> tuple[str, str] | None:
    """Topic and group of a key of the table; ``None`` if one is missing.

    A topic has no separator in its name. Brokers accept groups that have one.
    """
    topic, _, group = name.partition(SEPARATOR)
    return (topic, group) if topic and group else None


# --- progress of delay levels ---

DELAY_OFFSETS: Final = Table(DELAY_OFFSETS_FILE, _OFFSETS, _integer)


def load_delay_offsets(files: FileSystem, path: Path) -> Loaded[dict[int, int]]:
    """The next queue offset of each delay level, from the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` if the file cannot be parsed.
    """
    loaded = DELAY_OFFSETS.load(files, path)
    return Loaded(dict(loaded.value.values()), loaded.content)


def save_delay_offsets(
    files: FileSystem, path: Path, former: Content, offsets: Mapping[int, int], now_ms: int
) -> None:
    """Replace the file durably; arguments as those of ``save_offsets``.

    Raises ``OSError`` if the file cannot be written.
    """
    changed = {_OFFSETS: DELAY_OFFSETS.with_odd(former, _sorted(offsets))}
    _save(files, path / CONFIG_DIR / DELAY_OFFSETS_FILE, former, now_ms, changed)
