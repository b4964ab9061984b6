"""The settings of ``[rocketmq-ha]`` for ``role = "slave"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import field, frozen, validators

from lakelog_replication.address import Address
from lakelog_replication.multisource.source import SourceMaster

if TYPE_CHECKING:
    from lakelog_daemon.daemon import Runner
    from lakelog_daemon.logs import LogWriter
    from lakelog_daemon.plan import ServePlan


def _address(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value:
        try:
            Address.parse(value)
        except ValueError as error:
            raise ValueError(f"{attribute.name}: {error}") from None


def _addresses(_: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for each in value:
        _address(None, attribute, each or " ")


def _sources(_: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for each in value:
        try:
            SourceMaster.parse(each)
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
    :ivar masters: several masters in place of one, each ``[NAME=]HOST:PORT[,HOST:PORT]`` with the
        addresses of ``master`` and ``broker``; the folder then holds a store for each, by its name
    :ivar name_servers: ``HOST:PORT`` of RocketMQ's name servers; all masters that they list are
        copied as well
    :ivar cluster: only masters of this cluster; all if empty
    :ivar name_server_interval_ms: how often one of ``name_servers`` is asked
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
    masters: tuple[str, ...] = field(default=(), validator=_sources)
    name_servers: tuple[str, ...] = field(default=(), validator=_addresses)
    cluster: str = ""
    name_server_interval_ms: int = field(default=30_000, validator=validators.ge(1))
    vouch: Literal["age", "flushed", "received"] = "age"
    vouch_age_ms: int = field(default=12_000, validator=validators.ge(0))
    learner: bool = True
    history: Literal["all", "last"] = "all"
    reconnect_interval_ms: int = field(default=5_000, validator=validators.ge(1))
    sync_interval_ms: int = field(default=200, validator=validators.ge(1))
    groups_interval_ms: int = field(default=10_000, validator=validators.ge(1))

    def runner(self, plan: ServePlan, log: LogWriter, late_code: int) -> Runner | None:
        """What copies several masters; ``None`` for one. See :mod:`lakelog_daemon.daemon`."""
        if not (self.masters or self.name_servers):
            return None
        from lakelog_replication.multisource.daemon import MultiSourceDaemon

        return MultiSourceDaemon(plan, self, log, late_code)
