"""A store for event loops; see :mod:`lakelog_queues.aio`, from the package ``lakelog-queues``."""

from __future__ import annotations

from lakelog_queues.aio import AsyncConsumer, AsyncGroupConsumer, AsyncOpening, AsyncStore, open  # noqa: A004  # aio.open, as lakelog.open

__all__ = ["AsyncConsumer", "AsyncGroupConsumer", "AsyncOpening", "AsyncStore", "open"]
