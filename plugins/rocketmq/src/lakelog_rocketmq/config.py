"""RocketMQ's JSON files of ``config/``: topics, groups, and the offsets of groups and delay levels.

RocketMQ writes a file in place without a sync, so that it may be torn. It then reads the ``.bak``,
which holds the former content. lakelog does the same, and logs a warning. Files that lakelog writes
are never torn: first the ``.bak``, then the file is replaced by a rename.

fastjson writes integer keys of a map without quotes, ``{0:500,1:490}``, which is not JSON. The text
is split into strings, bare words and punctuation; a bare word before a colon is quoted. Strings are
never changed.

Sources: RocketMQ 5.3.3, ``TopicConfigManager``, ``SubscriptionGroupManager``,
``ConsumerOffsetManager``, ``ScheduleMessageService``, and the defaults of ``TopicConfig`` and
``SubscriptionGroupConfig``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from lakelog.errors import CorruptConfig
from lakelog.files.filesystem import FileSystem, read_file, unreadable, write_file
from lakelog.format.layout import CONFIG_DIR

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS_FILE: Final = "consumerOffset.json"
DELAY_OFFSETS_FILE: Final = "delayOffset.json"
_BACKUP: Final = ".bak"
_LOG: Final = logging.getLogger("lakelog")
_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<key>[^\s"{}\[\]:,]+)(?=\s*:)|[^\s"{}\[\]:,]+',
    re.DOTALL,
)
Read = TypeVar("Read")
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
    """Replace a file durably, as strict JSON indented by tabs like RocketMQ's.

    Valid former content is saved as the ``.bak`` first. A crash at any time leaves a readable file,
    with the former or the new content. After an ``OSError``, at most the ``.bak`` was replaced.
    """
    files.make_dir(path.parent)
    former = read_file(files, path) or b""
    with suppress(ValueError):  # a torn file must not replace a valid .bak
        parse_object(former)
        write_file(files, backup_of(path), former, syncs_name=False)
    encoded = json.dumps(content, indent="\t", ensure_ascii=False, separators=(",", ":"))
    write_file(files, path, encoded.encode())


def backup_of(path: Path) -> Path:
    """The path of the ``.bak`` of a file."""
    return path.with_name(path.name + _BACKUP)


def integer_table(found: object, where: str) -> dict[int, int]:
    """A map of integers to integers; raises ``ValueError`` for anything else.

    :param where: the name of the map, for error messages
    """
    numbers = {}
    for key, value in _map(found, where).items():
        if type(value) is not int:
            raise ValueError(f"{where}[{key}] is {value!r}, not an integer")
        numbers[int(key)] = value
    return numbers


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


def parse_object(content: bytes) -> dict[str, Any]:
    """The object in a file; the last value wins if a key repeats, as in fastjson.

    Raises ``ValueError`` if the content is anything else.

    >>> parse_object(b'{"offsetTable":{"T@g":{0:500,-1:490}},"note":"{2:3}"}')
    {'offsetTable': {'T@g': {'0': 500, '-1': 490}}, 'note': '{2:3}'}
    """
    try:
        found = json.loads(_TOKEN.sub(_quoted, content.decode()))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not an object")
    return found


def _quoted(token: re.Match[str]) -> str:
    key = token["key"]
    return token[0] if key is None else json.dumps(key)


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
    content = {**former, "dataVersion": next_version, **changed}
    save_config(files, path, content)
    return content


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


def load_topics(files: FileSystem, path: Path) -> Loaded[dict[str, TopicConfig]]:
    """Load the topics of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / TOPICS_FILE, read_topics)


def read_topics(content: Content) -> dict[str, TopicConfig]:
    """Parse the topics in a file's content; raises ``ValueError``."""
    return {topic: _topic(topic, found) for topic, found in object_table(content, _TOPICS).items()}


def _topic(topic: str, found: Content) -> TopicConfig:
    return TopicConfig(
        topic,
        int(found.get("readQueueNums", _DEFAULT_QUEUES)),
        int(found.get("writeQueueNums", _DEFAULT_QUEUES)),
        int(found.get("perm", _READ_AND_WRITE)),
        {str(name): str(value) for name, value in object_table(found, "attributes").items()},
    )


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
        name: {
            **known.get(name, _NEW_TOPIC),
            "attributes": dict(each.attributes),
            "perm": each.permission,
            "readQueueNums": each.read_queues,
            "topicName": each.topic,
            "writeQueueNums": each.write_queues,
        }
        for name, each in topics.items()
    }
    _save(files, path / CONFIG_DIR / TOPICS_FILE, former, now_ms, {_TOPICS: table})


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
    """

    group: str
    max_retries: int = MAX_RETRIES
    is_ordered: bool = False


def load_groups(files: FileSystem, path: Path) -> Loaded[dict[str, GroupConfig]]:
    """Load the groups of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / GROUPS_FILE, read_groups)


def read_groups(content: Content) -> dict[str, GroupConfig]:
    """Parse the groups in a file's content; raises ``ValueError``."""
    return {
        group: GroupConfig(
            group, int(found.get(_RETRIES, MAX_RETRIES)), bool(found.get(_ORDERED, False))
        )
        for group, found in object_table(content, _GROUPS).items()
    }


def settings_of(content: Content, group: str) -> dict[str, Any]:
    """All settings of a group in a file's content, in RocketMQ's names; defaults if it has none."""
    found = object_table(content, _GROUPS).get(group, {})
    return {**_NEW_GROUP, _RETRIES: MAX_RETRIES, "groupName": group, **found}


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
        name: {
            **known.get(name, _NEW_GROUP),
            "groupName": name,
            _RETRIES: each.max_retries,
            _ORDERED: each.is_ordered,
        }
        for name, each in groups.items()
    }
    former = {"forbiddenTable": {}, **former}
    _save(files, path / CONFIG_DIR / GROUPS_FILE, former, now_ms, {_GROUPS: table})


# --- next offsets of groups ---

SEPARATOR: Final = "@"
_OFFSETS: Final = "offsetTable"

Offsets: TypeAlias = dict[str, dict[int, int]]
"""Next queue offset to read, by ``TOPIC@GROUP`` and queue id."""


def load_offsets(files: FileSystem, path: Path) -> Loaded[Offsets]:
    """Load the offsets of the store directory ``path``; raises ``CorruptConfig``."""
    return load_config(files, path / CONFIG_DIR / CONSUMER_OFFSETS_FILE, read_offsets)


def read_offsets(content: Content) -> Offsets:
    """Parse the offsets in a file's content; raises ``ValueError``."""
    table = object_table(content, _OFFSETS)
    return {name: integer_table(found, name) for name, found in table.items()}


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
    changed = {
        "groupTopicMap": topics,  # informative only: it follows from the table
        _OFFSETS: {name: _sorted(table) for name, table in offsets.items()},
    }
    return _save(files, path / CONFIG_DIR / CONSUMER_OFFSETS_FILE, former, now_ms, changed)


def split_name(name: str) -> tuple[str, str] | None:
    """Topic and group of a key of the table; ``None`` for a key that RocketMQ ignores too."""
    parts = name.split(SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


# --- progress of delay levels ---


def load_delay_offsets(files: FileSystem, path: Path) -> Loaded[dict[int, int]]:
    """The next queue offset of each delay level, from the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` if the file cannot be parsed.
    """
    return load_config(files, path / CONFIG_DIR / DELAY_OFFSETS_FILE, read_delay_offsets)


def read_delay_offsets(content: Content) -> dict[int, int]:
    """Parse the offsets in a file's content; raises ``ValueError``."""
    return integer_table(content.get(_OFFSETS) or {}, _OFFSETS)


def save_delay_offsets(
    files: FileSystem, path: Path, former: Content, offsets: Mapping[int, int], now_ms: int
) -> None:
    """Replace the file durably; arguments as those of ``save_offsets``.

    Raises ``OSError`` if the file cannot be written.
    """
    changed = {_OFFSETS: _sorted(offsets)}
    _save(files, path / CONFIG_DIR / DELAY_OFFSETS_FILE, former, now_ms, changed)
