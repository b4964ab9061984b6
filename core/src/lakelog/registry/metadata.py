"""The name and version of an installed distribution, read from its folder of metadata."""

from __future__ import annotations

import os
import re

import attrs


@attrs.frozen
class Distribution:
    """An installed package, such as ``lakelog-mmap 1.2``."""

    name: str
    version: str

    def __str__(self) -> str:
        """Name and version, as errors print them."""
        return f"{self.name} {self.version}".rstrip()


def metadata_name(folder: str) -> str:
    """Extract the normalised name from ``NAME-VERSION.dist-info``.

    >>> metadata_name("site-packages/Lakelog_mmap-1.0.dist-info")
    'lakelog-mmap'
    """
    stem = os.path.basename(folder).rpartition(".")[0]
    return normalized_name(stem.partition("-")[0])


def normalized_name(name: str) -> str:
    """Normalise a package's name as in PEP 503; equal results mean the same package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_distribution(folder: str) -> Distribution:
    """Read ``METADATA`` or ``PKG-INFO`` in ``folder``; the folder's name is the fallback."""
    fields = _header(folder)
    name = fields.get("name", metadata_name(folder))
    return Distribution(name, fields.get("version", ""))


def _header(folder: str) -> dict[str, str]:
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                return _fields(file.read().partition("\n\n")[0])
        except OSError:
            continue
    return {}


def _fields(header: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in header.splitlines())
    return {key.lower(): value.strip() for key, _, value in reversed(list(pairs))}
