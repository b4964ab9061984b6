"""The messages of ``apache.rocketmq.v2``, in a separate descriptor pool.

Generated modules register in protobuf's default pool, and RocketMQ's Python client has the same
messages under other file names. So a process could not import both. The descriptor set was compiled
from RocketMQ's three public files by ``protoc --include_imports --descriptor_set_out``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "apache.rocketmq.v2"


def _filled_pool() -> descriptor_pool.DescriptorPool:
    content = (files(__package__) / "rocketmq_v2.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL: Final = _filled_pool()
SERVICE: Final[Any] = _POOL.FindServiceByName(f"{_PACKAGE}.MessagingService")
CODES: Final[dict[str, int]] = {
    each.name: each.number for each in _POOL.FindEnumTypeByName(f"{_PACKAGE}.Code").values
}
"""The numbers of ``Code``, by name."""


@cache
def proto(name: str) -> Any:
    """The message class with this short name; raises ``KeyError``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def class_of(descriptor: Any) -> Any:
    """The message class of a descriptor."""
    return message_factory.GetMessageClass(descriptor)
