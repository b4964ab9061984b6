"""Encodes messages to records and decodes records to messages; pure functions, no I/O."""

from lakelog.codec.decode import decode
from lakelog.codec.encoder import RocketmqAppendCallback
from lakelog.codec.record_batch import RecordBatch
from lakelog.codec.run import decode_run

__all__ = ["RecordBatch", "RocketmqAppendCallback", "decode", "decode_run"]
