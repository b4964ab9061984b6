"""What the two ends tell each other first: a :class:`Hello`, and a :class:`Welcome` or a refusal.

A change that an older end would misunderstand takes another ``PROTOCOL``. Every field must be
there, be of its type, and be known: what is not is refused, and the refusal says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar, get_type_hints

import attrs
from attrs import field, validators

from lakelog.attach.packets import Nonsense
from lakelog.settings.model import StoreSettings

PROTOCOL: Final = 1
PRODUCER: Final = "producer"
APPEND_CALLBACK: Final = "rocketmq"
"""The only one whose records the owner can finish for others."""

_T = TypeVar("_T", bound="Hello | Welcome")
_INT: Final = validators.ge(0)


def own_version() -> str:
    """The installed version of lakelog, for the other end's error texts."""
    try:
        return version("lakelog-core")
    except PackageNotFoundError:
        return "unknown"


@attrs.frozen(kw_only=True)
class Hello:
    """What a producer says.

    :ivar producer: its own id for its whole life, also over owners: 32 hex digits
    """

    protocol: int = PROTOCOL
    lakelog: str = field(factory=own_version, validator=validators.max_len(64))
    role: str = field(default=PRODUCER, validator=validators.in_((PRODUCER,)))
    pid: int = field(validator=_INT)
    producer: str = field(validator=validators.matches_re("[0-9a-f]{32}"))


@attrs.frozen(kw_only=True)
class Welcome:
    """What the owner answers: the settings by which a producer encodes, and a successor goes on.

    :ivar ring_bytes: length of the shared memory
    :ivar max_light_queues: ``None`` where ``INNER_MULTI_DISPATCH`` feeds none
    """

    protocol: int = PROTOCOL
    lakelog: str = field(factory=own_version)
    pid: int
    ring_bytes: int = field(validator=_INT)
    store_host: str
    record_crc: bool
    max_message_size_bytes: int = field(validator=validators.ge(1))
    segment_size_bytes: int = field(validator=validators.ge(1))
    queues_per_topic: int = field(validator=validators.ge(1))
    max_light_queues: int | None
    flush: str
    writer: str
    replicator: str | None
    commitlog_path: str | None

    @classmethod
    def of(cls, core: StoreSettings, pid: int, ring_bytes: int) -> Welcome:
        """What an owner with the settings ``core`` says."""
        return cls(
            pid=pid,
            ring_bytes=ring_bytes,
            store_host=core.store_host,
            record_crc=core.record_crc,
            max_message_size_bytes=core.max_message_size_bytes,
            segment_size_bytes=core.segment_size_bytes,
            queues_per_topic=core.queues_per_topic,
            max_light_queues=core.max_light_queues if core.light_queues else None,
            flush=core.flush,
            writer=core.writer,
            replicator=core.replicator,
            commitlog_path=None if core.commitlog_path is None else str(core.commitlog_path),
        )


def as_said(what: Hello | Welcome) -> dict[str, Any]:
    """The JSON object for ``what``."""
    return attrs.asdict(what)


def understood(kind: type[_T], said: Mapping[str, Any] | None) -> _T:
    """``said`` as a ``kind``; raises :class:`~lakelog.attach.packets.Nonsense`."""
    if said is None:
        raise Nonsense(f"a {kind.__name__.lower()} was expected")
    _check_protocol(said)
    hints = get_type_hints(kind)
    for name in hints.keys() - said.keys():
        raise Nonsense(f"{kind.__name__.lower()}: {name!r} is missing")
    for name, value in said.items():
        if name not in hints:
            raise Nonsense(f"{kind.__name__.lower()}: nobody knows {name[:64]!r}")
        if not _is_a(value, hints[name]):
            raise Nonsense(f"{kind.__name__.lower()}: {name!r} is {type(value).__name__}")
    try:
        return kind(**said)
    except (ValueError, TypeError) as error:
        raise Nonsense(f"{kind.__name__.lower()}: {str(error.args[0])[:200]}") from None


def _check_protocol(said: Mapping[str, Any]) -> None:
    """First of all: what another protocol's fields are, nobody here can know."""
    found = said.get("protocol")
    if found != PROTOCOL or isinstance(found, bool):
        theirs = str(said.get("lakelog"))[:64]
        raise Nonsense(
            f"this is lakelog {own_version()} with protocol {PROTOCOL}, the other process has "
            f"lakelog {theirs} with protocol {str(found)[:20]}; run the same version in both"
        )


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind)
