"""The modes in which a store can be opened."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from lakelog_format.arguments import WrongValue

Mode: TypeAlias = Literal["write", "read", "exclusive", "replica"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Former: TypeAlias = Literal["auto", "owner", "attach"]
FORMER: Final[Mapping[str, str]] = {
    "auto": "give mode='write', or none",
    "owner": "give mode='write', or mode='exclusive' to have the store for this process alone",
    "attach": "give mode='write', and attach={'take_over': False} to leave the services to others",
}
"""Deprecated modes, which act as ``write``, and the mode to use instead."""


def known_mode(mode: str, stacklevel: int = 3) -> Mode:
    """Return ``mode`` by its current name; warn of a deprecated one.

    :param stacklevel: that of the warning; 3 is the caller of this function's caller

    Raises ``ValueError`` for an unknown mode.
    """
    for each in MODES:
        if mode == each:
            return each
    if mode not in tuple(FORMER):
        raise WrongValue(f"mode {mode!r} is unknown; give one of {', '.join(map(repr, MODES))}")
    words = f"mode={mode!r} is deprecated, and does what mode='write' does: {FORMER[mode]}"
    warnings.warn(words, DeprecationWarning, stacklevel=stacklevel)
    return "write"
