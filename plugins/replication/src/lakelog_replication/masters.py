"""Addresses, as ``HOST:PORT``, and the masters whose copies are in one folder, with their file.

``lakelog/masters.json`` of the folder is ``{"version": 1, "masters": {NAME: ADDRESSES}}`` with the
addresses as :meth:`SourceMaster.parse` reads them. Through this file, a master that a name server
no longer lists is still copied after a restart, as long as the folder of its copy exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Final, NamedTuple

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import write_own
from lakelog.format.layout import OWN_DIR


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


MASTERS_FILE: Final = "masters.json"

_VERSION: Final = 1

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")


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


def read_masters(files: FileSystem, folder: Path) -> list[SourceMaster]:
    """Read the listed masters whose copies exist in ``folder``.

    Raises :class:`~lakelog.errors.StoreError` for a damaged file, and ``OSError``.
    """
    file = folder / OWN_DIR / MASTERS_FILE
    try:
        found = json.loads(read_file(files, file) or b'{"version": 1, "masters": {}}')
        if found["version"] != _VERSION:
            raise ValueError(f"its version is {found['version']}, not {_VERSION}")
        masters = [
            SourceMaster.parse(f"{name}={places}") for name, places in found["masters"].items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            f"the list of masters is damaged ({error}); remove it, and name the masters by --from "
            "or --from-name-server",
            path=file,
        ) from error
    return [each for each in masters if (folder / each.name).is_dir()]


def write_masters(files: FileSystem, folder: Path, masters: Iterable[SourceMaster]) -> None:
    """Replace the file; raises ``OSError``."""
    content = {"version": _VERSION, "masters": {each.name: each.places for each in masters}}
    write_own(files, folder, MASTERS_FILE, content, indent=1)
