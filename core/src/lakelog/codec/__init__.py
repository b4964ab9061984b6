"""Encodes messages to records and decodes records to messages; pure functions, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.codec.decode import decode

if TYPE_CHECKING:
    from lakelog.codec.encoder import RocketmqAppendCallback
    from lakelog.codec.record_batch import RecordBatch
    from lakelog.codec.run import decode_run

__all__ = ["RecordBatch", "RocketmqAppendCallback", "decode", "decode_run"]

_LAZY = {
    "RecordBatch": "record_batch",
    "RocketmqAppendCallback": "encoder",
    "decode_run": "run",
}


if not TYPE_CHECKING:  # a name that is not there is an error of types

    def __getattr__(name: str) -> Any:
        """Import attributes with heavy dependencies on first use."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
