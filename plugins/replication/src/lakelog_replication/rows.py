"""The objects that the commands of replication print with ``--json``."""

from __future__ import annotations

from typing import TypedDict


class SlaveStatusRow(TypedDict):
    """A slave of a store.

    :ivar acked: largest reported offset; null without a report
    :ivar sent: offset up to which the log was sent
    :ivar connected_ms: time of the connect, in ms since 1970
    """

    slave: str
    acked: int | None
    behind_bytes: int | None
    behind_messages: int | None
    behind_seconds: float | None
    sent: int | None
    learner: bool
    connected_ms: int


class LagRow(TypedDict):
    """A lag of a replica; null where unknown.

    :ivar lag: name of the lag
    """

    lag: str
    bytes: int | None
    messages: int | None
    seconds: float | None


class AdoptedRow(TypedDict):
    """A slave and its present master."""

    broker: str
    master: str
