"""Avro bodies as typed columns: each is one datum of a record, without a file around it.

With ``avro-confluent`` a datum comes behind Confluent's header (a zero byte, then in 4 bytes the id
of a schema in a registry), which is passed over: no registry is asked, every datum is read by the
one schema that is given. Bytes behind the datum make a body bad.
"""

from __future__ import annotations

import json
from functools import cached_property
from io import BytesIO
from typing import Any, Final

import attrs
import pyarrow as pa

from lakelog_spark.landing.bodies.avrotypes import Renamed, columns_of, understood
from lakelog_spark.landing.bodies.refusing import needs, refused
from lakelog_spark.landing.bodies.rowwise import Rowwise

_HEADER_BYTES: Final = 5


@attrs.frozen(slots=False)
class Avro(Rowwise):
    """A parser of Avro bodies.

    :ivar text: the schema, as its file says it
    :ivar confluent: whether Confluent's header comes first
    """

    text: str
    confluent: bool

    @classmethod
    def of(cls, text: str, source: str, *, confluent: bool) -> Avro:
        """The parser for the schema ``text``; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            import fastavro
        except ImportError as error:
            raise needs("fastavro", "avro") from error
        made = cls(text, confluent)
        try:
            made._schema, made.fields  # noqa: B018  # to see whether they can be made
        except (
            *(ValueError, TypeError, KeyError, RecursionError),
            *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
        ) as error:
            raise refused(f"no Avro schema that can be read: {error}", source) from error
        return made

    @cached_property
    def _schema(self) -> Any:
        from fastavro.schema import parse_schema

        return parse_schema(understood(json.loads(self.text)))

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Renamed]:
        return columns_of(understood(json.loads(self.text)))

    def _decode(self, body: bytes) -> dict[str, Any]:
        from fastavro import schemaless_reader

        file = BytesIO(body)
        if self.confluent:
            _pass_header(file)
        try:
            value = schemaless_reader(file, self._schema, None)
        except EOFError as error:
            raise ValueError(f"byte {file.tell()}: it ends within the datum") from error
        except IndexError as error:
            what = "no such symbol of an enum, or branch of a union"
            raise ValueError(f"byte {file.tell()}: {what}") from error
        except Exception as error:
            what = str(error) or type(error).__name__
            raise ValueError(f"byte {file.tell()}: {what}") from error
        if file.tell() != len(body):
            raise ValueError(f"byte {file.tell()}: the datum ends here, and the body does not")
        columns: dict[str, Any] = self._columns[1](value)
        return columns


def _pass_header(file: BytesIO) -> None:
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or header[0] != 0:
        raise ValueError("byte 0: no header of Confluent's: a zero byte, and 4 of a schema's id")
