"""Commits of attached consumers: how they are asked for, and how the owner keeps them.

Nothing that comes is trusted. What no lakelog says is :class:`~lakelog.attach.packets.Nonsense`;
a name or a number that cannot be kept is answered, and harms nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.attach.lane import Answer, failed
from lakelog.attach.packets import Nonsense
from lakelog.codec.limits import encode_topic
from lakelog.consumers.names import offsets_name
from lakelog.errors import IllegalMessage, LakelogError, SettingsError, StoreError

if TYPE_CHECKING:
    from lakelog.consumers.offsettable import OffsetTable

MOST_PLACES: Final = 256
"""The most queues of one question; a packet has room for them and for the longest names."""
MOST_KEPT: Final = 1_000_000
"""With so many offsets in the store's table, others than the owner add none: it is one file."""
_MOST_QUEUE: Final = (1 << 31) - 1
_MOST_OFFSET: Final = (1 << 63) - 1
_FIELDS: Final = {"group", "topic", "offsets"}


@attrs.frozen
class AskedCommit:
    """One commit, by the word of another process.

    :ivar offsets: the next offset of each queue
    """

    group: str
    topic: str
    offsets: Mapping[int, int]

    def check(self) -> None:
        """Raises a :class:`~lakelog.errors.LakelogError` for what cannot be kept."""
        offsets_name(self.topic, self.group)
        try:
            encode_topic(self.topic)
        except IllegalMessage as error:
            raise SettingsError(str(error), key="topic") from None
        for queue, offset in self.offsets.items():
            if not (0 <= queue <= _MOST_QUEUE and 0 <= offset <= _MOST_OFFSET):
                raise StoreError(f"queue {queue} has no offset {offset}")


def asked_for(group: str, topic: str, offsets: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """The questions that one commit makes."""
    places = sorted(offsets.items())
    for start in range(0, len(places), MOST_PLACES):
        some = places[start : start + MOST_PLACES]
        yield {"ask": "commit", "group": group, "topic": topic, "offsets": some}


def commit_asked(said: Mapping[str, Any]) -> AskedCommit:
    """What a process wants kept; raises :class:`~lakelog.attach.packets.Nonsense`."""
    if said.keys() != _FIELDS:
        raise Nonsense(f"a commit has {', '.join(sorted(_FIELDS))}")
    group, topic, places = said["group"], said["topic"], said["offsets"]
    if not (isinstance(group, str) and isinstance(topic, str) and isinstance(places, list)):
        raise Nonsense("the parts of a commit are of other types")
    if len(places) > MOST_PLACES or not all(map(_is_place, places)):
        raise Nonsense(f"a commit has at most {MOST_PLACES} pairs of a queue and an offset")
    return AskedCommit(group, topic, dict(places))


def _is_place(place: object) -> bool:
    return isinstance(place, list) and len(place) == 2 and all(type(each) is int for each in place)


def keep(table: OffsetTable, asked: Sequence[AskedCommit]) -> Sequence[Answer]:
    """Keep all that can be kept by one write; an answer to each."""
    room = MOST_KEPT - table.places()
    answers, kept = list[Answer](), list[AskedCommit]()
    for each in asked:
        try:
            each.check()
            _check_room(room - len(each.offsets))
        except LakelogError as error:
            answers.append(failed(error))
        else:
            answers.append({"committed": len(each.offsets)})
            kept.append(each)
            room -= len(each.offsets)
    if kept:
        table.commit_all((each.group, each.topic, each.offsets) for each in kept)
    return answers


def _check_room(room: int) -> None:
    if room < 0:
        raise StoreError(
            f"the table of committed offsets has {MOST_KEPT} places, and no room for others'; "
            "commit in the owner, or remove groups that are gone"
        )
