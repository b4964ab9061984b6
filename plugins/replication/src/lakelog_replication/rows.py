"""The objects that the commands of replication print with ``--json``."""

from __future__ import annotations

from typing import TypedDict


class SlaveStatusRow(TypedDict):
    """A slave of a store.

    :ivar acked: offset up to which it has the log; null if it does not report
    :ivar sent: offset up to which the log was sent
    :ivar connected_ms: since when, in ms since 1970
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
    """A lag of a replica; null what is not known.

    :ivar lag: its name
    """

    lag: str
    bytes: int | None
    messages: int | None
    seconds: float | None


class AdoptedRow(TypedDict):
    """A slave, and its master now."""

    broker: str
    master: str
