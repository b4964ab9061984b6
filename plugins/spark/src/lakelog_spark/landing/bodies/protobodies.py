"""Protocol Buffers bodies as typed columns: each is one message, without a length before it.

The schema is a descriptor set (``protoc --include_imports --descriptor_set_out=FILE``) and the name
of a message. Fields that the message does not know are passed over, as everywhere with this format,
so that many bytes that are something else can be read as a message.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from lakelog_spark.landing.bodies.prototypes import Step, columns_of
from lakelog_spark.landing.bodies.refusing import needs, refused
from lakelog_spark.landing.bodies.rowwise import Rowwise

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


@attrs.frozen(slots=False)
class Protobuf(Rowwise):
    """A parser of Protocol Buffers bodies.

    :ivar descriptors: a serialised ``FileDescriptorSet``
    :ivar message: the full name of the message in it
    """

    descriptors: bytes
    message: str

    @classmethod
    def of(cls, descriptors: bytes, message: str, source: str) -> Protobuf:
        """The parser; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise needs("protobuf", "protobuf") from error
        made = cls(descriptors, message)
        try:
            made.fields  # noqa: B018  # to see whether it can be made
        except KeyError as error:
            raise refused(f"no message is called {message}", source) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise refused(f"no descriptor set that can be read: {error}", source) from error
        return made

    @cached_property
    def _descriptor(self) -> Descriptor:
        from google.protobuf import descriptor_pb2, descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
        for file in _in_order({file.name: file for file in files}):
            pool.Add(file)
        return pool.FindMessageTypeByName(self.message)

    @cached_property
    def _class(self) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._descriptor)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Step]:
        return columns_of(self._descriptor)

    def _decode(self, body: bytes) -> dict[str, Any]:
        made: dict[str, Any] = self._columns[1](self._class.FromString(body))
        return made


def _in_order(files: dict[str, Any]) -> list[Any]:
    """Each file behind those that it imports; raises :class:`ValueError` if one is not there."""
    ordered: dict[str, Any] = {}

    def add(name: str, importer: str) -> None:
        if name in ordered:
            return
        if name not in files:
            raise ValueError(f"{importer} imports {name}: give protoc --include_imports")
        file = files.pop(name)
        for needed in file.dependency:
            add(needed, name)
        ordered[name] = file

    for name in tuple(files):
        add(name, "")
    return list(ordered.values())
