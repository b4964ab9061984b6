"""A client of a schema registry; the schema of an id never changes, so it is cached."""

from __future__ import annotations

import base64
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import attrs

from lakelog_lake.bodies.base import refused
from lakelog_lake.errors import RegistryUnreachable

USER_INFO: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
"""The environment variable with ``USER:PASSWORD``, as in Confluent's tools."""
_TRIES: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.2
_TIMEOUT_SECONDS: Final = 10.0
_UNKNOWN_SECONDS: Final = 30.0
"""Seconds until an unknown id is requested again: each body may have that id."""
_NOT_FOUND: Final = 404
_OF_A_SCHEMA: Final = (40401, 40402, 40403)
"""Error codes of a registry (unknown subject, version or schema) that come with HTTP status 404; a
404 without one is not from a registry."""
_MAY_PASS: Final = (408, 425, 429, 500, 502, 503, 504)
HEADER_BYTES: Final = 5
_VERSIONED: Final = re.compile(r"(.+)@(\d+)")


class UnknownSchema(ValueError):
    """The registry does not have the schema."""


@attrs.frozen
class Schema:
    """One schema.

    :ivar kind: ``AVRO``, ``PROTOBUF`` or ``JSON``
    :ivar text: the schema; for Protocol Buffers a file descriptor in Base64
    :ivar references: the schemas that this one refers to, each with its name in this schema
    """

    kind: str
    text: str
    references: tuple[tuple[str, Schema], ...] = ()


@attrs.frozen
class SchemaRegistry:
    """A registry's address; sent to the processes that parse.

    :ivar url: the URL without user and password
    :ivar form: requested format of schemas; ``None`` is the registered one
    :ivar auth: value of the header ``Authorization``, if any
    """

    url: str
    form: str | None
    auth: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, form: str | None = None) -> SchemaRegistry:
        """Parse ``http://[USER:PASSWORD@]HOST:PORT[/PATH]``; default user: :data:`USER_INFO`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise refused("a registry is at http://HOST:PORT or https://HOST", "--body")
        user_info, _, host = parts.netloc.rpartition("@")
        who = unquote(user_info) if user_info else os.environ.get(USER_INFO)
        auth = None if not who else f"Basic {base64.b64encode(who.encode()).decode()}"
        return cls(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), form, auth)

    def by_id(self, number: int) -> Schema:
        """Return the schema with the id ``number``, cached.

        Raises :class:`UnknownSchema` and :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        key = (self.url, self.form, number)
        known = _SCHEMAS.get(key)
        if known is not None:
            return known
        if time.monotonic() < _UNKNOWN.get(key, 0.0):
            raise UnknownSchema(f"the registry has no schema {number}")
        try:
            found = _SCHEMAS[key] = self._whole(self._get(f"schemas/ids/{number}"))
        except UnknownSchema:
            _UNKNOWN[key] = time.monotonic() + _UNKNOWN_SECONDS
            raise UnknownSchema(f"the registry has no schema {number}") from None
        return found

    def named(self, text: str) -> Schema:
        """Look up ``SUBJECT@VERSION``, ``SUBJECT`` for its newest version, or ``id=NUMBER``.

        Raises :class:`~lakelog.errors.SettingsError` for an unknown schema, and
        :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        try:
            if text.removeprefix("id=").isdigit() and text.startswith("id="):
                return self.by_id(int(text.removeprefix("id=")))
            found = _VERSIONED.fullmatch(text)
            return self._of(found[1], found[2]) if found else self._of(text, "latest")
        except UnknownSchema as error:
            raise refused(f"{self.url} has no {text}: {error}", "--body") from error

    def _of(self, subject: str, version: str) -> Schema:
        return self._whole(self._get(f"subjects/{quote(subject, safe='')}/versions/{version}"))

    def _whole(self, found: Mapping[str, Any]) -> Schema:
        kind = str(found.get("schemaType", "AVRO"))
        references = tuple(
            (str(each["name"]), self._of(str(each["subject"]), str(each["version"])))
            for each in found.get("references") or ()
        )
        return Schema(kind, str(found["schema"]), references)

    def _get(self, path: str) -> Mapping[str, Any]:
        """Get ``path``; retries temporary errors."""
        url = f"{self.url}/{path}" + ("" if self.form is None else f"?format={self.form}")
        pause, why = _FIRST_PAUSE_SECONDS, ""
        for left in reversed(range(_TRIES)):
            try:
                return self._asked(url)
            except urllib.error.HTTPError as error:
                body = _error_body(error)
                if error.code == _NOT_FOUND and body.get("error_code") in _OF_A_SCHEMA:
                    raise UnknownSchema(str(body.get("message"))) from None
                why = f"{error.code} {body.get('message') or error.reason}"
                if error.code not in _MAY_PASS:
                    raise RegistryUnreachable(self.url, why) from None
            except (OSError, HTTPException, ValueError) as error:
                why = str(getattr(error, "reason", error)) or type(error).__name__
            if left:
                time.sleep(pause)
                pause *= 2
        raise RegistryUnreachable(self.url, why)

    def _asked(self, url: str) -> Mapping[str, Any]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        request = urllib.request.Request(url, headers=headers)
        if self.auth is not None:  # not sent on to other hosts after a redirect
            request.add_unredirected_header("Authorization", self.auth)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            found = json.load(answer)
        if not isinstance(found, dict) or "schema" not in found:
            raise ValueError("it is not a registry: its answer has no schema")
        return found


_SCHEMAS: Final[dict[tuple[str, str | None, int], Schema]] = {}
_UNKNOWN: Final[dict[tuple[str, str | None, int], float]] = {}


def _error_body(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        found = json.load(error)
    except (OSError, HTTPException, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def header_of(body: bytes) -> int:
    """The schema id in the header of ``body``; raises :class:`ValueError`."""
    if len(body) < HEADER_BYTES or body[0] != 0:
        raise ValueError("byte 0: no Confluent header (a zero byte, and 4 bytes of schema id)")
    return int.from_bytes(body[1:HEADER_BYTES], "big")


def split(place: str, name: str, form: str | None = None) -> tuple[SchemaRegistry, str, str]:
    """Split ``URL#SUBJECT[#MESSAGE]`` into registry, schema and message."""
    url, _, rest = place.partition("#")
    schema, _, message = rest.partition("#")
    if not schema:
        raise refused(f"a registry needs a subject: {name}:URL#SUBJECT, or URL#id=1", "--body")
    return SchemaRegistry.at(url, form), schema, message
