"""A host and a port, as ``HOST:PORT``."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """An address of TCP."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``HOST:PORT``, or ``[HOST]:PORT`` for an address with colons.

        Raises ``ValueError``.

        >>> Address.parse("[::1]:10912")
        Address(host='::1', port=10912)
        """
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        """As :meth:`parse` takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
