"""Single requests of RocketMQ's remoting protocol to a broker's port for clients or a name server.

A request and its response are ``int32 length | int32 (kind << 24 | header length) | header |
body``, big-endian. The length counts the bytes that follow it. The header of kind 0 is JSON. The
source is RocketMQ 5.3.3, ``RemotingCommand`` and ``RequestCode``.
"""

from __future__ import annotations

import json
import logging
import math
import re
import socket
import struct
from collections.abc import Mapping
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.errors import LakelogError
from lakelog.runtime.locks import LockFreeEvent
from lakelog.runtime.threads import started
from lakelog_replication.settings import Address
from lakelog_rocketmq.fastjson import encode, parse_object

_LOG: Final = logging.getLogger("lakelog")
GET_ALL_TOPIC_CONFIG: Final = 21
GET_BROKER_CONFIG: Final = 26
GET_BROKER_RUNTIME_INFO: Final = 28
GET_ALL_CONSUMER_OFFSET: Final = 43
GET_ALL_DELAY_OFFSET: Final = 45
GET_BROKER_CLUSTER_INFO: Final = 106
GET_ALL_SUBSCRIPTION_GROUPS: Final = 201
EXCHANGE_BROKER_HA_INFO: Final = 906

MOST_BYTES: Final = 64 << 20
"""The longest response that is read."""
_TIMEOUT_S: Final = 5.0
"""Timeout of the connect, and of each read and write."""
_LENGTHS: Final = struct.Struct(">iI")
_VERSION: Final = 479
"""The version number that brokers of RocketMQ 5.3.3 send."""
_AMOUNT: Final = re.compile(r"(\d+(?:[.,]\d)?) ([KMGTPE]i)?B")
_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class BrokerRefused(LakelogError):
    """A broker cannot be reached, refuses a request, or answers with something else."""


@attrs.frozen
class Response:
    """A successful response.

    :ivar fields: the header's ``extFields``
    :ivar body: the bytes behind the header
    """

    fields: Mapping[str, str]
    body: bytes

    def content(self) -> Any:
        """The object in the body; raises :class:`BrokerRefused`."""
        try:
            return parse_object(self.body)
        except ValueError as error:
            raise BrokerRefused(f"a broker answered with a body that is no JSON: {error}") from None


@attrs.frozen
class RuntimeInfo:
    """The state that a broker reports; offsets are physical offsets in bytes.

    :ivar boot_ms: start time of the broker, in ms since 1970
    :ivar minimum: start of its log
    :ivar end: end of its log
    :ivar flushed: a lower bound for the end of the synced bytes
    """

    boot_ms: int
    minimum: int
    end: int
    flushed: int


def call(
    broker: Address, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
) -> Response:
    """Send one request on a new connection, and return the response.

    :param code: the request code
    :param fields: the header's ``extFields``

    Raises :class:`BrokerRefused`, also for a response code other than success.
    """
    sender = {"flag": 0, "language": "PYTHON", "opaque": 1, "version": _VERSION}
    header = encode({"code": code, "extFields": dict(fields or {}), **sender})
    try:
        with socket.create_connection((broker.host, broker.port), _TIMEOUT_S) as sock:
            length = 4 + len(header) + len(body)
            sock.sendall(_LENGTHS.pack(length, len(header)) + header + body)
            with sock.makefile("rb") as stream:
                length, kind = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
                if not 4 <= length <= MOST_BYTES or kind >> 24 or (kind & 0xFFFFFF) > length - 4:
                    raise BrokerRefused(f"{broker} answers in another protocol, or in binary")
                rest = _exactly(stream, length - 4)
    except (OSError, EOFError) as error:
        raise BrokerRefused(f"{broker} does not answer request {code}: {error}") from error
    return _response(broker, code, rest[: kind & 0xFFFFFF], rest[kind & 0xFFFFFF :])


def _exactly(stream: Any, count: int) -> bytes:
    data: bytes = stream.read(count)
    if len(data) < count:
        raise EOFError("the connection ended inside of the response")
    return data


def _response(broker: Address, code: int, header: bytes, body: bytes) -> Response:
    try:
        found = json.loads(header)
        result, remark = int(found["code"]), found.get("remark")
        fields = {str(key): str(value) for key, value in (found.get("extFields") or {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BrokerRefused(f"{broker} answers request {code} with a damaged header") from None
    if result:
        raise BrokerRefused(f"{broker} refuses request {code}: {result} {remark or ''}".rstrip())
    return Response(fields, body)


def runtime_info(broker: Address) -> RuntimeInfo:
    """Start, end and synced end of a broker's log (request 28); raises :class:`BrokerRefused`."""
    content = call(broker, GET_BROKER_RUNTIME_INFO).content()
    try:
        table = content["table"]
        end = int(table["commitLogMaxOffset"])
        behind = most_bytes(table.get("remainHowManyDataToFlush", ""))
        flushed = 0 if behind is None else max(0, end - behind)
        boot_ms, minimum = int(table["bootTimestamp"]), int(table["commitLogMinOffset"])
        return RuntimeInfo(boot_ms, minimum, end, flushed)
    except (KeyError, TypeError, ValueError) as error:
        raise BrokerRefused(f"{broker} does not say how far its log is: {error!r}") from None


def most_bytes(text: str) -> int | None:
    """The largest number of bytes that a rounded amount can mean; ``None`` for any other text.

    >>> most_bytes("12 B"), most_bytes("54.5 KiB"), most_bytes("much")
    (12, 55860, None)
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = float(found[1].replace(",", ".")), _UNITS.index(found[2] or "")
    return int(number) if not unit else math.ceil((number + 0.05) * 1024**unit)


def broker_config(broker: Address) -> dict[str, str]:
    """The settings of a broker (request 26); raises :class:`BrokerRefused`."""
    text = call(broker, GET_BROKER_CONFIG).body.decode(errors="replace")
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


class BrokerPoll:
    """Asks a broker at an interval, in a thread; logs when it begins to fail, and to answer."""

    def __init__(self, broker: Address, interval_s: float, name: str, about: str = "") -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`.

        :param name: of the thread
        :param about: first words of log lines
        """
        self._broker, self._interval_s, self._about = broker, interval_s, about
        self._over = LockFreeEvent()
        self._why = ""
        self._thread = started(Thread(target=self._run, name=name, daemon=True))

    def ask(self) -> None:
        """Ask once; an error is a :class:`~lakelog.errors.LakelogError`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop asking; a call of :meth:`ask` under way is completed."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            why = ""
            try:
                self.ask()
            except LakelogError as error:
                why = str(error)
            if why != self._why:
                self._why = why
                _LOG.warning("%s%s", self._about, why or f"{self._broker} answers again")
            self._over.wait(self._interval_s)


def adopt(broker: Address, master: Address) -> None:
    """Make a RocketMQ slave replicate from ``master`` (request 906); it connects within about 5 s.

    The setting ``haMasterAddress`` of a 5.x slave has no effect, and without a name server the
    slave has no other source for the address. The request must be repeated after each start of the
    slave.

    :param broker: the slave's address for clients (its ``listenPort``)
    :param master: the master's address for slaves

    Raises :class:`BrokerRefused`.
    """
    # Every minute the slave asks the master's port for clients, by convention one below, for
    # settings that a lakelog store does not serve. The slave logs the failure, and continues.
    asked = master._replace(port=max(1, master.port - 1))
    fields = {
        "masterHaAddress": str(master),
        "masterAddress": str(asked),
        "masterFlushOffset": "0",
    }
    try:
        call(broker, EXCHANGE_BROKER_HA_INFO, fields)
    except BrokerRefused as error:
        raise BrokerRefused(
            f"{error}; give the address and the listenPort of a slave of version 5"
        ) from error
