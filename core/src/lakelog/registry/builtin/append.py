"""The append callback ``rocketmq``: RocketMQ's record layout."""

from __future__ import annotations

from typing import Any

from lakelog.codec.encoder import RocketmqAppendCallback
from lakelog.interfaces import Context


def make(_settings: Any, context: Context) -> RocketmqAppendCallback:
    """Build the callback from the core's settings."""
    return RocketmqAppendCallback.of(context.core, context.accelerator)
