"""Memory of the owner into which entries are copied, side by side, so that one write takes all.

It is used again for each append: fresh memory for each would cost more than the copy.
"""

from __future__ import annotations

from collections.abc import Sequence


class Arena:
    """Room that is handed out from front to back, and taken back all at once."""

    def __init__(self, size: int) -> None:
        self._memory = memoryview(bytearray(size))
        self._used = 0
        self._claims: list[memoryview] = []

    def reset(self) -> None:
        """Take back what was handed out; what is in it may be overwritten from here on."""
        self._used = 0
        self._claims.clear()

    def claim(self, length: int) -> memoryview:
        """``length`` bytes right behind those handed out last; elsewhere if there is no room."""
        start, end = self._used, self._used + length
        if end > len(self._memory):
            return memoryview(bytearray(length))
        self._used = end
        claimed = self._memory[start:end]
        self._claims.append(claimed)
        return claimed

    def joined(self, pieces: Sequence[memoryview]) -> memoryview | None:
        """``pieces`` as one, if they are all that was handed out, in this order."""
        if len(pieces) != len(self._claims):
            return None
        if any(piece is not claim for piece, claim in zip(pieces, self._claims, strict=True)):
            return None
        return self._memory[: self._used]
