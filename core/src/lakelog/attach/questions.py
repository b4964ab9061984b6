"""What attached processes ask of the owner beside their puts.

``flush``: to make durable what was appended. ``commit``: to keep the offsets of a group. Each kind
has a thread of its own, so that neither waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lakelog.attach.attached import Client
from lakelog.attach.commits import AskedCommit, commit_asked, keep
from lakelog.attach.lane import Answer, Lane
from lakelog.attach.packets import Nonsense

if TYPE_CHECKING:
    from lakelog.consumers.offsettable import OffsetTable


class Questions:
    """Gives each question to those who answer it.

    :param flush: makes durable what was appended; the end of it
    :param offsets: what groups committed
    """

    def __init__(self, flush: Callable[[], int], offsets: OffsetTable) -> None:
        self._flushes = Lane[None]("lakelog-attach-flush", partial(_flushed, flush))
        self._commits = Lane[AskedCommit]("lakelog-attach-commit", partial(keep, offsets))

    def ask(self, client: Client, said: Mapping[str, Any]) -> None:
        """``client`` asks; raises :class:`~lakelog.attach.packets.Nonsense`."""
        number = said.get("id")
        if type(number) is not int:
            raise Nonsense("nobody knows how to answer that")
        what = {key: value for key, value in said.items() if key != "id"}
        if what == {"ask": "flush"}:
            self._flushes.add(client, number, None)
        elif what.pop("ask", None) == "commit":
            self._commits.add(client, number, commit_asked(what))
        else:
            raise Nonsense("nobody knows how to answer that")

    def end(self) -> None:
        """Answer what was asked, then stop."""
        self._flushes.end()
        self._commits.end()


def _flushed(flush: Callable[[], int], asked: Sequence[None]) -> Sequence[Answer]:
    return [{"flushed": flush()}] * len(asked)
