"""Section ``[rocketmq-ha]``, for masters and slaves, and the addresses and masters in it.

For TLS between lakelog stores, both sides present a certificate of one authority.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import attrs
from attrs import field, frozen, validators

from lakelog.errors import SettingsError
from lakelog.format.layout import OWN_DIR
from lakelog_replication.wire import MAX_BODY_BYTES

if TYPE_CHECKING:
    import ssl

    from lakelog_daemon.daemon import Runner
    from lakelog_daemon.logs import LogWriter
    from lakelog_daemon.plan import ServePlan


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT`` or ``[IPV6]:PORT``; raises ``ValueError``."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
            raise ValueError(f"{text!r} is no address; give HOST:PORT, such as 127.0.0.1:10912")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SourceMaster(NamedTuple):
    """A master to copy.

    :ivar name: the broker's name, or a chosen one; also the name of the folder with the copy
    :ivar slaves: address for slaves (``haListenPort``)
    :ivar broker: address for clients (``listenPort``), if known
    """

    name: str
    slaves: Address
    broker: Address | None = None

    @classmethod
    def parse(cls, text: str) -> SourceMaster:
        """Read ``[NAME=]HOST:PORT[,HOST:PORT]``; raises ``ValueError``.

        The second address is ``broker``. Without ``NAME=``, the name is made from the first
        address.

        >>> SourceMaster.parse("10.0.0.1:10912").name
        '10.0.0.1_10912'
        """
        name, equals, places = text.rpartition("=")
        slaves, comma, broker = places.partition(",")
        address = Address.parse(slaves)
        if not equals:
            name = _OTHER.sub("_", str(address)).strip("_")
        return cls(cls.checked_name(name), address, Address.parse(broker) if comma else None)

    @property
    def places(self) -> str:
        """The addresses, as :meth:`parse` reads them."""
        return str(self.slaves) if self.broker is None else f"{self.slaves},{self.broker}"

    def __str__(self) -> str:
        return f"{self.name}={self.places}"

    @staticmethod
    def checked_name(name: str) -> str:
        """Return ``name`` if a folder of a copy may have it; raises ``ValueError``."""
        if not _NAME.fullmatch(name) or name == OWN_DIR:
            raise ValueError(
                f"{name!r} cannot name the folder of a copy: use up to 50 letters, digits, '.', "
                f"'_' and '-', and not {OWN_DIR!r}"
            )
        return name


_LONGEST_POLL_MS: Final = (1 << 31) - 1
"""``poll`` takes an ``int``."""


def _each(parse: Callable[[str], object]) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """A validator of one text, or of several, that ``parse`` must accept; one may be empty."""

    def check(_: object, attribute: attrs.Attribute[Any], value: str | tuple[str, ...]) -> None:
        for each in value if isinstance(value, tuple) else filter(None, [value]):
            try:
                parse(each)
            except ValueError as error:
                raise ValueError(f"{attribute.name}: {error}") from None

    return check


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

    master: str = field(default="", validator=_each(Address.parse))
    broker: str = field(default="", validator=_each(Address.parse))
    masters: tuple[str, ...] = field(default=(), validator=_each(SourceMaster.parse))
    name_servers: tuple[str, ...] = field(default=(), validator=_each(Address.parse))
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
        from lakelog_replication.multisource import MultiSourceDaemon

        return MultiSourceDaemon(plan, self, log, late_code)


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
    allow: tuple[str, ...] = field(default=("127.0.0.0/8", "::1"), validator=_each(ip_network))
    learners: tuple[str, ...] = field(default=(), validator=_each(ip_network))
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


def tls_context(settings: RocketmqHaSettings, purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """The TLS context for one side; ``None`` without certificates, as with RocketMQ.

    :param purpose: ``CLIENT_AUTH`` for a master, which slaves connect to; ``SERVER_AUTH`` for a
        slave

    Raises :class:`~lakelog.errors.SettingsError` if a file cannot be used.
    """
    if settings.certificate is None:
        return None
    import ssl

    try:
        context = ssl.create_default_context(purpose, cafile=settings.authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError is one
        files = (settings.certificate, settings.key, settings.authority)
        raise SettingsError(
            f"rocketmq-ha: the files certificate, key and authority cannot be used: {error}; they "
            f"must be PEM files, and are {', '.join(map(str, files))}"
        ) from error
    return context
