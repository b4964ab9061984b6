"""One request of RocketMQ's remoting protocol, which tells a slave broker where its master is.

A message is ``u32 length of the rest, u32 serialization << 24 | header length, header, body``,
big-endian, with the header in JSON (serialization 0). Source: RocketMQ 5.3.3, ``RemotingCommand``,
``RequestCode`` and ``ExchangeHAInfoRequestHeader``.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Final

import attrs

from lakelog.errors import LakelogError
from lakelog_replication.settings import Address

_EXCHANGE_BROKER_HA_INFO: Final = 906
_VERSION: Final = 489
"""Of RocketMQ 5.3.3, as its brokers send it."""
_PREFIX: Final = struct.Struct(">II")
_MOST_BYTES: Final = 16 << 20
"""Largest answer; RocketMQ's own limit for a frame."""


class BrokerRefused(LakelogError):
    """A broker could not be reached, or did not do what it was asked."""


def adopt(broker: Address, master: Address, timeout_s: float = 5.0) -> None:
    """Make a RocketMQ slave replicate from ``master``; it connects within about 5 s.

    The setting ``haMasterAddress`` of a 5.x slave has no effect, and without a name server nothing
    else tells it. A slave that is started again must be told again.

    :param broker: where the slave takes requests (its ``listenPort``)
    :param master: where the master serves slaves

    Raises :class:`BrokerRefused`.
    """
    # Every minute the slave asks the master's broker port, by convention one below, for what a
    # lakelog store does not have; it logs that nobody answers, and goes on.
    asked = attrs.evolve(master, port=max(1, master.port - 1))
    fields = {
        "masterHaAddress": str(master),
        "masterAddress": str(asked),
        "masterFlushOffset": "0",
    }
    try:
        answer = _request(broker, _EXCHANGE_BROKER_HA_INFO, fields, timeout_s)
    except (OSError, ValueError, struct.error) as error:
        raise BrokerRefused(
            f"{broker}: no broker of RocketMQ answers there ({error}); give the address and the "
            "listenPort of the slave"
        ) from error
    if answer.get("code") != 0:
        raise BrokerRefused(
            f"{broker}: the broker refused the master {master} with code {answer.get('code')}: "
            f"{answer.get('remark')}; is it of version 5 and a slave?"
        )


def _request(at: Address, code: int, fields: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """Send a request without a body; return the answer's header."""
    header = json.dumps(
        {
            "code": code,
            "language": "PYTHON",
            "version": _VERSION,
            "opaque": 1,
            "flag": 0,
            "extFields": fields,
        }
    ).encode()
    with socket.create_connection((at.host, at.port), timeout_s) as sock:
        sock.sendall(_PREFIX.pack(4 + len(header), len(header)) + header)
        with sock.makefile("rb") as stream:
            length, kind = _PREFIX.unpack(stream.read(_PREFIX.size))
            if not 4 <= length <= _MOST_BYTES:
                raise ValueError(f"an answer of {length} bytes")
            found = json.loads(stream.read(length - 4)[: kind & 0xFFFFFF])
    if not isinstance(found, dict):
        raise ValueError("an answer without a header")
    return found
