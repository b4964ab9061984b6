"""The public names of :mod:`lakelog_format.codec`, and the append callback of the core."""

from lakelog.codec.append_callback import RocketmqAppendCallback
from lakelog.codec.decode import decode
from lakelog_format.codec import RecordBatch, decode_run

__all__ = ["RecordBatch", "RocketmqAppendCallback", "decode", "decode_run"]
