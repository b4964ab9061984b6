"""Parsers of message bodies, selected by a text.

========================================  ======================================================
``binary``                                unchanged bytes
``string``                                UTF-8
``json:PATH``                             by a JSON Schema or a Spark DDL (:mod:`.json`)
``avro:PATH``, ``avro-confluent:PATH``    by an Avro schema; the second strips Confluent's header
``protobuf:PATH#pkg.Message``             by a descriptor set, ``protoc --descriptor_set_out``
``avro-registry:URL#SUBJECT``             by a schema registry
``protobuf-registry:URL#SUBJECT``         by a schema registry
========================================  ======================================================

Schema files are read once, when the parser is made, and are part of it: executors need no access to
them. The libraries of the formats are imported on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from lakelog.errors import SettingsError
from lakelog_lake.bodies import avro, base, json, protobuf
from lakelog_lake.bodies.base import KEY, BodyParser, refused


def parser_for(text: str) -> BodyParser:
    """Make the parser that ``text`` names; raises :class:`~lakelog.errors.SettingsError`."""
    name, _, place = text.partition(":")
    if name == "variant":
        raise SettingsError(
            "variant is not supported: pyiceberg cannot load a table with it, and Arrow cannot "
            "write it; use json with a schema file, or string",
            key=KEY,
        )
    known = ("binary", "string", *_BY_FILE)
    if name not in known:
        raise SettingsError(
            f"no format of bodies has the name {name!r}; known are {', '.join(known)}", key=KEY
        )
    if name not in _BY_FILE:
        if place:
            raise SettingsError(f"{name} takes no schema file: {name}:{place}", key=KEY)
        return base.Whole(is_text=name == "string")
    if not place:
        raise SettingsError(f"{name} needs a schema file: {name}:PATH", key=KEY)
    return _BY_FILE[name](place)


def _json(place: str) -> BodyParser:
    if place == "infer" or place.startswith("infer:"):
        raise SettingsError(
            "a schema is inferred once and pinned in a file, so that restarts agree: "
            "lakelog lake infer-schema STORE --topic T > FILE, then json:FILE",
            key=KEY,
        )
    return json.Json.of(_text(Path(place)), place)


def _avro(confluent: bool, place: str) -> BodyParser:
    return avro.Avro.of(_text(Path(place)), place, confluent=confluent)


def _protobuf(place: str) -> BodyParser:
    path, _, message = place.rpartition("#")
    if not path or not message:
        raise SettingsError(f"protobuf needs a message: protobuf:{place}#pkg.Message", key=KEY)
    return protobuf.Protobuf.of(_bytes(Path(path)), message, path)


_BY_FILE: Final[dict[str, Callable[[str], BodyParser]]] = {
    "json": _json,
    "avro": partial(_avro, False),
    "avro-confluent": partial(_avro, True),
    "protobuf": _protobuf,
    "avro-registry": avro.Avro.at,
    "protobuf-registry": protobuf.RegistryProtobuf.at,
}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise refused(f"no schema file: {error.strerror}", str(path)) from error


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"no text in UTF-8: {error}", str(path)) from error
