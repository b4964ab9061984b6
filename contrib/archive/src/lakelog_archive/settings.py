"""The section ``[fsspec]``."""

from __future__ import annotations

import attrs
from attrs import validators


def _is_given(_settings: object, _attribute: object, url: str) -> None:
    if not url.strip():
        raise ValueError("url is empty; give a directory, or a URL such as s3://bucket/folder")


@attrs.frozen(kw_only=True)
class ArchiveSettings:
    """Where segments go.

    :ivar url: a directory, or what fsspec understands, such as ``s3://bucket/folder``; keys and
        endpoints are for fsspec's own configuration. Each store has a folder of its own in it
    :ivar read_bytes: how much is fetched at once where less is asked for
    """

    url: str = attrs.field(validator=_is_given)
    read_bytes: int = attrs.field(default=1 << 20, validator=validators.ge(4096))
