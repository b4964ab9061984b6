"""The error for a name that the store does not have, with suggestions from the existing names."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from lakelog import Store
from lakelog.errors import LakelogError
from lakelog_cli.shown import shown

_NAMED: Final = 5
"""Number of existing names in a message."""


class UnknownName(LakelogError):
    """The store has no topic, queue or group of that name; wrong usage."""


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Raise :class:`UnknownName` unless ``name`` is in ``known``.

    :param kind: kind of the name, such as ``topic``
    """
    if name in known:
        return
    near = get_close_matches(name, known, 1)
    if near:
        raise UnknownName(f"no {kind} {_quoted(name)} is here; do you mean {_quoted(near[0])}?")
    raise UnknownName(f"no {kind} {_quoted(name)} is here; {_listed(kind, known)}")


def check_queue(store: Store, topic: str, queue_id: int) -> None:
    """Raise :class:`UnknownName` unless the store has the queue."""
    if store.queue_bounds(topic, queue_id) is None:
        check_name("topic", topic, store.topics())
        ids = [str(each.queue_id) for each in store.queues(topic)]
        check_name(f"queue of topic {_quoted(topic)}", str(queue_id), ids)


def _listed(kind: str, known: Collection[str]) -> str:
    if not known:
        return f"there is no {kind} at all"
    names = ", ".join(map(_quoted, list(known)[:_NAMED]))
    return f"there is {names}{' and more' if len(known) > _NAMED else ''}"


def _quoted(name: str) -> str:
    return f"'{shown(name)}'"
