"""Why a segment is not archived, or cannot be read back."""

from __future__ import annotations

from lakelog.errors import StoreError


class ArchiveError(StoreError):
    """An archive does not hold what it should."""


class NotTheSame(ArchiveError):
    """Another segment was archived in the same place."""
