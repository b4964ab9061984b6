"""Encodes messages to records and decodes records to messages; pure functions, no I/O."""

from lakelog_format.codec.decode import decode
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_format.codec.run import decode_run

__all__ = ["RecordBatch", "decode", "decode_run"]
