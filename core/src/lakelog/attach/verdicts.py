"""The errors of entries that the owner did not answer."""

from __future__ import annotations

from lakelog.errors import LakelogError, OutcomeUnknown, PutRefused
from lakelog.status import PutStatus


def refused(error: LakelogError) -> LakelogError:
    """For an entry that surely is in no log."""
    if isinstance(error, PutRefused):
        return error
    return PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error))


def too_large(error: LakelogError) -> PutRefused:
    """For one that no ring takes."""
    return PutRefused(PutStatus.MESSAGE_SIZE_EXCEEDED, f"{error} (attach.ring_bytes)")


def unknown(error: LakelogError) -> LakelogError:
    """For one that a dead owner had begun to write."""
    return OutcomeUnknown(
        "the owner died while it appended this; whether it is in the log, "
        f"only the log can say ({error})"
    )


def dropped(why: str) -> PutRefused:
    """For who is put out."""
    return PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, f"the owner has put this process out: {why}")
