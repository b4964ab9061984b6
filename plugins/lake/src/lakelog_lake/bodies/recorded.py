"""The parsers of a table's bodies, kept beside it, so that ``verify`` can parse the bodies again.

``_lakelog/bodies-DIGEST.json`` in the table's folder has the parsers of a dispatcher by topic, with
their schemas. A file never changes: its name is a digest of its content. The position of a store
has the digests, each with the physical offset from which on bodies landed by these parsers. So rows
are compared by the schema under which they landed, also after it changed or the table was restored.

A parser that is not one of this package has no text, and is kept as null: its columns cannot be
compared. Users and passwords of registries are not kept.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import attrs

from lakelog_lake.bodies.avro import Avro
from lakelog_lake.bodies.base import BodyParser, Whole, needs
from lakelog_lake.bodies.json import Json
from lakelog_lake.bodies.json_schema import FieldShape
from lakelog_lake.bodies.protobuf import Protobuf, RegistryProtobuf
from lakelog_lake.bodies.schema_registry import Schema, SchemaRegistry
from lakelog_lake.errors import Unreadable
from lakelog_lake.tables import remote

Parsers: TypeAlias = "Mapping[str, BodyParser | None]"
"""Parsers by topic; ``None`` for one that is not known."""
_FOLDER: Final = "_lakelog"
"""Beside the folder of the data files; engines ignore names with an underscore."""
_DIGITS: Final = 16


def keep(folder: remote.Folder, parsers: Mapping[str, BodyParser]) -> str:
    """Write the file of ``parsers``, durably; return its digest, which is empty without parsers.

    :param folder: the folder of the table's data files

    Raises ``OSError``.
    """
    if not parsers:
        return ""
    described = {topic: _described(each) for topic, each in sorted(parsers.items())}
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    digest = sha256(text).hexdigest()[:_DIGITS]
    place = _place(folder, digest)
    if not isinstance(place, Path):
        place.write_bytes(text)
    elif not place.exists():
        _write(place, text)
    return digest


def _write(place: Path, text: bytes) -> None:
    place.parent.mkdir(exist_ok=True)
    temporary = place.with_name(f"{uuid4().hex}.tmp")
    with temporary.open("xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(place)
    remote.sync(place.parent)
    remote.sync(place.parent.parent)


def kept(folder: remote.Folder, digest: str) -> Parsers | None:
    """The parsers of a file; none for an empty digest, ``None`` for a missing file.

    Raises :class:`~lakelog_lake.errors.Unreadable` for a file that has another content.
    """
    if not digest:
        return {}
    place = _place(folder, digest)
    try:
        text = place.read_bytes()
    except FileNotFoundError:
        return None
    if sha256(text).hexdigest()[:_DIGITS] != digest:
        raise Unreadable(f"{place} was changed: it has not the parsers by which bodies landed")
    return {topic: _parser_of(each) for topic, each in json.loads(text).items()}


def _place(folder: remote.Folder, digest: str) -> remote.Folder:
    name = f"bodies-{digest}.json"
    if isinstance(folder, Path):
        return folder.parent / _FOLDER / name
    return remote.Remote(f"{folder.uri.rpartition('/')[0]}/{_FOLDER}/{name}", folder.files)


def _described(parser: BodyParser) -> Mapping[str, Any] | None:
    if isinstance(parser, Whole):
        return {"format": "string" if parser.is_text else "binary"}
    if isinstance(parser, Json):
        return {"format": "json", "shape": attrs.asdict(parser.shape)}
    if isinstance(parser, Avro):
        registry = _address(parser.registry)
        reader = attrs.asdict(parser.reader)
        return {
            "format": "avro",
            "reader": reader,
            "confluent": parser.confluent,
            "registry": registry,
        }
    if isinstance(parser, Protobuf):
        registry = _address(parser.registry) if isinstance(parser, RegistryProtobuf) else None
        descriptors = base64.b64encode(parser.descriptors).decode()
        return {
            "format": "protobuf",
            "descriptors": descriptors,
            "message": parser.message,
            "registry": registry,
        }
    return None


def _address(registry: SchemaRegistry | None) -> list[str | None] | None:
    return None if registry is None else [registry.url, registry.form]


def _parser_of(described: Mapping[str, Any] | None) -> BodyParser | None:
    """The reverse of :func:`_described`; ``None`` for a format that is not known."""
    match described:
        case {"format": "string" | "binary" as name}:
            return Whole(is_text=name == "string")
        case {"format": "json", "shape": shape}:
            return Json(_shape(shape))
        case {"format": "avro", "reader": reader, "confluent": confluent, "registry": address}:
            _check_package("fastavro", "avro")
            registry = None if address is None else SchemaRegistry.at(*address)
            return Avro(_schema(reader), confluent, registry)
        case {"format": "protobuf", "descriptors": text, "message": name, "registry": address}:
            _check_package("google.protobuf", "protobuf")
            descriptors = base64.b64decode(text)
            if address is None:
                return Protobuf(descriptors, name)
            return RegistryProtobuf(descriptors, name, SchemaRegistry.at(*address))
    return None


def _check_package(module: str, extra: str) -> None:
    """Raise :class:`~lakelog.errors.SettingsError` rather than find that no body parses."""
    try:
        import_module(module)
    except ImportError as error:
        raise needs(module, extra) from error


def _shape(found: Mapping[str, Any]) -> FieldShape:
    return FieldShape(**{**found, "fields": tuple(map(_shape, found["fields"]))})


def _schema(found: Mapping[str, Any]) -> Schema:
    references = tuple((name, _schema(each)) for name, each in found["references"])
    return Schema(found["kind"], found["text"], references)
