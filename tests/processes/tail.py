"""Counts lines of a journal as they come."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.define
class Tail:
    """Whole lines that begin with a word, from some place on."""

    path: Path
    word: str
    place: int = 0
    total: int = 0

    @classmethod
    def at_end(cls, path: Path, word: str) -> Tail:
        """Only those that come from now on."""
        return cls(path, word, path.stat().st_size if path.exists() else 0)

    def more(self) -> int:
        """How many have come since the last call."""
        count = self._count() if self.path.exists() else 0
        self.total += count
        return count

    def _count(self) -> int:
        with self.path.open("rb") as file:
            file.seek(self.place)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.place += len(whole)
        prefix = self.word.encode() + b" "
        return sum(line.startswith(prefix) for line in whole.splitlines())
