"""The fingerprint of a record, by which a log is recognised."""

from __future__ import annotations

import attrs


def is_whole(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    """Validate a field that is a whole number, 0 or more; raises ``ValueError``."""
    if type(value) is not int or value < 0:  # JSON's true is an int to Python
        raise ValueError(f"{attribute.name} must be a whole number, 0 or more, not {value!r}")


@attrs.frozen
class Fingerprint:
    """One record: :ivar offset: its place in the log; :ivar size: in bytes; :ivar crc: CRC-32."""

    offset: int = attrs.field(validator=is_whole)
    size: int = attrs.field(validator=is_whole)
    crc: int = attrs.field(validator=is_whole)
