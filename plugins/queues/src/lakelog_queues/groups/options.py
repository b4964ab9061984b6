"""The options of a member of a group, and the store as a member uses it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from lakelog.arguments import WrongValue, span_ms, topic_name, whole, wrong_type
from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem
from lakelog.message import Message
from lakelog_queues.configs import DEFAULT_RETRIES, retry_limits
from lakelog_queues.consumers import consumer
from lakelog_queues.consumers.offsettable import check_group, offsets_name
from lakelog_queues.finding.results import PlacedResult
from lakelog_queues.groups.property_filter import PropertyFilter
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_queues.units.tags import tag_filter

GetPlaced: TypeAlias = Callable[..., PlacedResult]
"""Reads one queue, as ``QueueGetter.get_placed``."""


def boot_ms() -> int:
    """Time since the machine's start, in ms; nobody can set it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@attrs.frozen
class GroupAccess:
    """The store, as a member of a group uses it.

    :ivar get: reads one queue
    :ivar queues: queue ids, bounds, committed offsets, and waiting for messages
    :ivar put: appends a message
    :ivar end: returns the end of the log
    :ivar now_ms: returns the time by which invisible times and delays end
    """

    files: FileSystem
    path: Path
    get: GetPlaced
    queues: consumer.QueueAccess
    put: Callable[[Message], object]
    end: Callable[[], int]
    now_ms: Callable[[], int] = boot_ms


@attrs.frozen(kw_only=True)
class GroupOptions:
    """The options of a member of a group; see ``Store.subscribe``.

    :ivar topics: the tag expression of each topic; ``None`` selects all messages
    :ivar filter: selects messages of ``topics``
    :ivar start: the place in a queue for which the group has no offset
    :ivar broadcast: the name of a consumer that gets all messages, and shares no queue
    :ivar max_attempts: the number of hand-outs after which a message is a dead letter; ``None`` is
        without a limit, or with :attr:`retries_by_topic` that of the group's configuration
    """

    group: str
    topics: Mapping[str, str | None]
    filter: PropertyFilter | None
    start: consumer.StartPosition
    orderly: bool = attrs.field(converter=bool)
    broadcast: str | None
    invisible_ms: int
    max_attempts: int | None
    commit_interval_ms: int
    idle_ms: int

    @classmethod
    def of(
        cls,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str | None],
        *,
        tags: str | None,
        filter: str | None,  # noqa: A002  # the word of RocketMQ and of users
        **more: object,
    ) -> GroupOptions:
        """Check the arguments; raises ``SettingsError``, ``TypeError`` and ``ValueError``.

        :param tags: the tag expression of all topics, unless ``topics`` is a mapping
        """
        check_group(group)
        chosen = _topics(topics, tags)
        for topic, expression in chosen.items():
            offsets_name(topic, group)
            tag_filter(topic, expression)
        parsed = None if filter is None else _filter(filter, chosen)
        made = cls(group=group, topics=chosen, filter=parsed, **more)  # type: ignore[arg-type]  # the values are checked below
        consumer.check_start_position(made.start)
        for name, least in (("invisible_ms", 1), ("commit_interval_ms", 0), ("idle_ms", 1)):
            if span_ms(name, getattr(made, name)) < least:
                raise WrongValue(f"{name} is {getattr(made, name)}; give {least} or more")
        if made.broadcast is not None:
            check_group(made.broadcast, "broadcast")
        if made.max_attempts is not None:
            whole("max_attempts", made.max_attempts, 1)
        return made

    def configured(self, files: FileSystem, path: Path) -> GroupOptions:
        """With the group's limit in the store directory ``path``; raises ``CorruptConfig``.

        A message that RocketMQ may retry once is handed out twice.
        """
        if self.max_attempts is not None or not self.retries_by_topic:
            return self
        retries = retry_limits(files, path).get(self.group, DEFAULT_RETRIES)
        return attrs.evolve(self, max_attempts=max(retries, 0) + 1)

    @property
    def retry_topic(self) -> str:
        """The topic of the group's retries."""
        return f"{RETRY_PREFIX}{self.group}"

    @property
    def retries_by_topic(self) -> bool:
        """Whether a message that failed goes through the retry topic."""
        return not (self.orderly or self.broadcast)

    @property
    def all_topics(self) -> dict[str, str | None]:
        """``topics``, and the retry topic, in which RocketMQ may have put messages."""
        return {**self.topics, **({} if self.broadcast else {self.retry_topic: None})}

    @property
    def scope(self) -> str:
        """The name of the state that the members share; a group's name holds no ``@``."""
        return f"{self.group}@{self.broadcast}" if self.broadcast else self.group

    @property
    def subscription(self) -> str:
        """A text that is equal for members that can share."""
        chosen = {"topics": self.topics, "orderly": self.orderly}
        if self.filter is not None:
            chosen["filter"] = self.filter.text
        return json.dumps(chosen, sort_keys=True)


def _filter(text: str, topics: Mapping[str, str | None]) -> PropertyFilter:
    if not isinstance(text, str):
        raise wrong_type("filter", text, "a str such as \"region = 'eu'\"")
    if any(tags is not None for tags in topics.values()):
        raise SettingsError("give 'tags' or 'filter'; TAGS is a property in it", key="filter")
    return PropertyFilter(text)


def _topics(
    topics: str | Sequence[str] | Mapping[str, str | None], tags: str | None
) -> dict[str, str | None]:
    if isinstance(topics, Mapping):
        if tags is not None:
            raise SettingsError("give the tags of each topic in 'topics', or 'tags'", key="tags")
        found = dict(topics)
    elif isinstance(topics, str):
        found = {topics: tags}
    elif isinstance(topics, Sequence) and not isinstance(topics, bytes):
        found = {topic_name(each): tags for each in topics}
    else:
        raise wrong_type("topics", topics, "a str, a list of them, or a dict with tags by topic")
    if not found:
        raise SettingsError("it is empty; give one topic or more", key="topics")
    return found
