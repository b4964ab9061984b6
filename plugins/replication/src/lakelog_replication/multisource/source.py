"""The masters whose copies are in one folder, and the file that lists them.

``lakelog/masters.json`` of the folder is ``{"version": 1, "masters": {NAME: ADDRESSES}}`` with the
addresses as :meth:`SourceMaster.parse` reads them. Through this file, a master that a name server
no longer lists is still copied after a restart, as long as the folder of its copy exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import write_own
from lakelog.format.layout import OWN_DIR
from lakelog_replication.address import Address

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
        return cls(checked_name(name), address, Address.parse(broker) if comma else None)

    @property
    def places(self) -> str:
        """The addresses, as :meth:`parse` reads them."""
        return str(self.slaves) if self.broker is None else f"{self.slaves},{self.broker}"

    def __str__(self) -> str:
        return f"{self.name}={self.places}"


def checked_name(name: str) -> str:
    """Return ``name`` if it is a valid name for the folder of a copy; else raise ``ValueError``."""
    if not _NAME.fullmatch(name) or name == OWN_DIR:
        raise ValueError(
            f"{name!r} cannot name the folder of a copy: use up to 50 letters, digits, '.', '_' "
            f"and '-', and not {OWN_DIR!r}"
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
