"""Errors of archiving a segment, or of reading it back."""

from __future__ import annotations

from lakelog.errors import StoreError


class ArchiveError(StoreError):
    """The content of an archive is not as expected."""


class NotTheSame(ArchiveError):
    """Another segment was archived in the same place."""
