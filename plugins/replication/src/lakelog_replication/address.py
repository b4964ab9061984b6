"""A host and a port, as ``HOST:PORT``."""

from __future__ import annotations

from attrs import frozen


@frozen
class Address:
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
