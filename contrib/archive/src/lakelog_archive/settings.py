"""The section ``[fsspec]``."""

from __future__ import annotations

import attrs
from attrs import validators


def _is_given(_settings: object, _attribute: object, url: str) -> None:
    if not url.strip():
        raise ValueError("url is empty; give a directory, or a URL such as s3://bucket/folder")


@attrs.frozen(kw_only=True)
class ArchiveSettings:
    """The location of archived segments.

    :ivar url: a directory, or an fsspec URL such as ``s3://bucket/folder``; keys and endpoints are
        in fsspec's own configuration. Each store has its own folder there
    :ivar read_bytes: smallest number of bytes to fetch at once
    """

    url: str = attrs.field(validator=_is_given)
    read_bytes: int = attrs.field(default=1 << 20, validator=validators.ge(4096))
