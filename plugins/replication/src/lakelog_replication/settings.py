"""Section ``[rocketmq-ha]``."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Literal

import attrs
from attrs import field, frozen, validators

from lakelog_replication.replica.settings import SlaveSettings
from lakelog_replication.wire import MAX_BODY_BYTES

_LONGEST_POLL_MS: Final = (1 << 31) - 1
"""``poll`` takes an ``int``."""


def _networks(_: object, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for each in value:
        try:
            ip_network(each)
        except ValueError as error:
            raise ValueError(f"{attribute.name}: {error}") from None


@frozen(kw_only=True)
class RocketmqHaSettings(SlaveSettings):
    """Settings of ``rocketmq-ha``; durations in milliseconds, sizes in bytes.

    :ivar role: whether this store sends its log to slaves, or is a copy of a master's
    :ivar host: address at which a master waits for slaves; the empty text is every address
    :ivar port: port for slaves (RocketMQ's ``haListenPort``); 0 is any free one
    :ivar allow: addresses and networks (``10.0.0.0/8``) from which slaves may connect
    :ivar learners: addresses and networks whose slaves get the log, but count for no put
    :ivar send: what slaves get: ``flushed`` is what this store cannot lose, ``written`` is all that
        was written, as RocketMQ does it
    :ivar in_sync_replicas: number of copies that a put waits for, this one included
        (``inSyncReplicas``); with 1 no put waits
    :ivar requires_in_sync: whether a put that waits is refused before its append, with
        ``IN_SYNC_REPLICAS_NOT_ENOUGH``, while fewer copies are in sync; otherwise it is appended,
        with ``SLAVE_NOT_AVAILABLE``. A broker does so with ``enableSlaveActingMaster``
    :ivar slave_timeout_ms: longest wait of a put for its copies (``slaveTimeout``); it then returns
        ``FLUSH_SLAVE_TIMEOUT``
    :ivar max_gap_bytes: a slave that is further behind counts as absent
        (``haMaxGapNotInSync``)
    :ivar batch_bytes: largest body of a frame (``haTransferBatchSize``)
    :ivar hold_bytes: how much of the log behind the fastest deletion is kept for a connected slave;
        a slave that is further behind may find its place deleted; 0 keeps nothing
    :ivar heartbeat_interval_ms: pause in sending after which a heartbeat is sent
        (``haSendHeartbeatInterval``)
    :ivar silence_timeout_ms: a connection is closed if nothing came for this long
        (``haHousekeepingInterval``)
    :ivar close_timeout_ms: how long a store that is closed waits until slaves have its log
    :ivar certificate: PEM file with this side's certificate, for TLS between lakelogs; without it
        there is no TLS, which RocketMQ does not have
    :ivar key: PEM file with the certificate's private key
    :ivar authority: PEM file with the authority that signed the other side's certificate
    """

    role: Literal["master", "slave"] = "master"
    host: str = "127.0.0.1"
    port: int = field(default=10_912, validator=[validators.ge(0), validators.le(65_535)])
    allow: tuple[str, ...] = field(default=("127.0.0.0/8", "::1"), validator=_networks)
    learners: tuple[str, ...] = field(default=(), validator=_networks)
    send: Literal["flushed", "written"] = "flushed"
    in_sync_replicas: int = field(default=1, validator=validators.ge(1))
    requires_in_sync: bool = False
    slave_timeout_ms: int = field(default=3_000, validator=validators.ge(1))
    max_gap_bytes: int = field(default=256 << 20, validator=validators.ge(1))
    batch_bytes: int = field(
        default=32 << 10, validator=[validators.ge(1), validators.le(MAX_BODY_BYTES)]
    )
    hold_bytes: int = field(default=1 << 30, validator=validators.ge(0))
    heartbeat_interval_ms: int = field(default=5_000, validator=validators.ge(1))
    silence_timeout_ms: int = field(
        default=20_000, validator=[validators.ge(1), validators.le(_LONGEST_POLL_MS)]
    )
    close_timeout_ms: int = field(default=3_000, validator=validators.ge(0))
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def __attrs_post_init__(self) -> None:
        if self.requires_in_sync and self.in_sync_replicas == 1:
            raise ValueError("requires_in_sync needs in_sync_replicas of 2 or more")
        given = [each is not None for each in (self.certificate, self.key, self.authority)]
        if any(given) and not all(given):
            raise ValueError("certificate, key and authority are given together, or none of them")
