"""The arguments of ``Store.subscribe``, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from lakelog.arguments import WrongValue, span_ms, whole, wrong_type
from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem
from lakelog_queues.configs import DEFAULT_RETRIES, retry_limits
from lakelog_queues.consumers.consumer import StartPosition, check_start_position
from lakelog_queues.consumers.offsettable import check_group, offsets_name
from lakelog_queues.groups.property_filter import PropertyFilter
from lakelog_queues.groups.set_aside import RETRY_PREFIX
from lakelog_queues.units.tags import tag_filter


@attrs.frozen(kw_only=True)
class GroupOptions:
    """The options of a member of a group; see ``Store.subscribe``.

    :ivar topics: the tag expression of each topic; ``None`` selects all messages
    :ivar filter: the parsed ``filter_text``, which selects messages of ``topics``
    :ivar start: the place in a queue for which the group has no offset
    :ivar broadcast: the name of a consumer that gets all messages, and shares no queue
    :ivar max_attempts: the number of hand-outs after which a message is a dead letter; ``None`` is
        without a limit, or with :attr:`retries_by_topic` that of the group's configuration
    """

    group: str
    topics: Mapping[str, str | None]
    filter_text: str | None = None
    filter: PropertyFilter | None = None
    start: StartPosition
    orderly: bool
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
        made = cls(group=group, topics=chosen, **more)  # type: ignore[arg-type]  # checked below
        if filter is not None:
            made = attrs.evolve(made, filter_text=filter, filter=_filter(filter, chosen))
        check_start_position(made.start)
        for name, least in (("invisible_ms", 1), ("commit_interval_ms", 0), ("idle_ms", 1)):
            if span_ms(name, getattr(made, name)) < least:
                raise WrongValue(f"{name} is {getattr(made, name)}; give {least} or more")
        if made.broadcast is not None:
            check_group(made.broadcast)
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
        if self.filter_text is not None:
            chosen["filter"] = self.filter_text
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
        found = dict.fromkeys(topics, tags)
    else:
        raise wrong_type("topics", topics, "a str, a list of them, or a dict with tags by topic")
    if not found:
        raise SettingsError("it is empty; give one topic or more", key="topics")
    return found
