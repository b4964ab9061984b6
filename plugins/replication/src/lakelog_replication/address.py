"""A host and a port, as ``HOST:PORT``."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple


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


def plain_address(text: str) -> str:
    """Return an IP address in its usual form, an IPv4-mapped IPv6 address as IPv4.

    Raises ``ValueError``.
    """
    found = ip_address(text.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(found if mapped is None else mapped)


def is_in(address: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Whether an IP address is in one of the networks; raises ``ValueError``."""
    found = ip_address(address)
    return any(found in each for each in networks)
