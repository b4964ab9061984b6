"""The section ``[every-n]`` of the settings."""

from __future__ import annotations

import attrs
from attrs import field, validators


@attrs.frozen(kw_only=True)
class EveryNSettings:
    """When to sync.

    :ivar appends: how many puts or batches share one sync; as many can be lost in a power cut
    """

    appends: int = field(default=100, validator=validators.ge(1))
