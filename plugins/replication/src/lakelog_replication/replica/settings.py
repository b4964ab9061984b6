"""The settings of ``[rocketmq-ha]`` for ``role = "slave"``."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs import field, frozen, validators

from lakelog_replication.address import Address


def _address(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value:
        try:
            Address.parse(value)
        except ValueError as error:
            raise ValueError(f"{attribute.name}: {error}") from None


@frozen(kw_only=True)
class SlaveSettings:
    """Settings of a replica.

    :ivar master: ``HOST:PORT`` for slaves of the master (RocketMQ's ``haListenPort``, which is the
        broker's port + 1 if nothing else is set)
    :ivar broker: ``HOST:PORT`` of the master for clients (``listenPort``), to ask it more than the
        HA protocol says, and for the positions of its consumer groups; empty if it cannot be
        reached
    :ivar vouch: which bytes count as durable, and land in tables: ``flushed`` is what the master
        has synced, as ``broker`` says it; ``age`` is what came ``vouch_age_ms`` before the master
        was heard last; ``received`` is everything
    :ivar vouch_age_ms: time in which the master has certainly synced what it sent
        (``flushCommitLogThoroughInterval`` and ``flushIntervalCommitLog``, and some more)
    :ivar learner: whether the master does not count this copy for ``inSyncReplicas``
    :ivar history: where a new replica begins: at the first segment of the master, or at its last
    :ivar reconnect_interval_ms: pause before a lost connection is made anew
    :ivar sync_interval_ms: pause between two syncs while the master sends
    :ivar groups_interval_ms: how often ``broker`` is asked for positions of consumer groups
    """

    master: str = field(default="", validator=_address)
    broker: str = field(default="", validator=_address)
    vouch: Literal["age", "flushed", "received"] = "age"
    vouch_age_ms: int = field(default=12_000, validator=validators.ge(0))
    learner: bool = True
    history: Literal["all", "last"] = "all"
    reconnect_interval_ms: int = field(default=5_000, validator=validators.ge(1))
    sync_interval_ms: int = field(default=200, validator=validators.ge(1))
    groups_interval_ms: int = field(default=10_000, validator=validators.ge(1))
