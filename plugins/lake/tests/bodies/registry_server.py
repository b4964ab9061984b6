"""A small schema registry: an HTTP server that keeps to Confluent's protocol."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import attrs


@attrs.define
class RegistryServer:
    """What it holds.

    :ivar failing: so many requests fail first
    :ivar asked: paths, in order; :ivar who: who asked, of each
    :ivar moved_to: where it sends everybody
    """

    schemas: list[dict[str, Any]] = attrs.field(factory=list)
    versions: dict[str, list[int]] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    who: list[str | None] = attrs.field(factory=list)
    moved_to: str | None = None
    failing: int = 0
    user_info: str | None = None
    url: str = ""

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """The id of the schema: a new version of the subject."""
        self.schemas.append({"schema": text, "schemaType": kind, "references": list(references)})
        self.versions.setdefault(subject, []).append(len(self.schemas))
        return len(self.schemas)

    def answer(self, path: str, form: str | None) -> tuple[int, dict[str, Any]]:
        """The status and the body."""
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 0 < number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self._shown(number, form)
        subject, version = parts[1], parts[3]
        numbers = self.versions.get(subject)
        if numbers is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if version != "latest" and int(version) > len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        at = len(numbers) if version == "latest" else int(version)
        number = numbers[at - 1]
        said = {"subject": subject, "version": at, "id": number}
        return 200, {**said, **self._shown(number, form)}

    def _shown(self, number: int, form: str | None) -> dict[str, Any]:
        found = dict(self.schemas[number - 1])
        if found["schemaType"] == "PROTOBUF" and form != "serialized":
            found["schema"] = 'syntax = "proto3";'
        if found["schemaType"] == "AVRO":
            del found["schemaType"]  # as registries leave it out
        if not found["references"]:
            del found["references"]
        return found

    def status_before(self, headers: Mapping[str, str]) -> int | None:
        """What is said before anything is looked up."""
        if self.failing:
            self.failing -= 1
            return 503
        if self.user_info is not None:
            expected = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
            if headers.get("Authorization") != expected:
                return 401
        return None


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """It runs until the block ends."""
    held = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            url = urlsplit(self.path)
            held.asked.append(url.path)
            held.who.append(self.headers.get("Authorization"))
            if held.moved_to is not None:
                self.send_response(302)
                self.send_header("Location", held.moved_to + self.path)
                self.end_headers()
                return
            status = held.status_before(dict(self.headers))
            said: dict[str, Any] = {"error_code": status, "message": "not now, or not you"}
            if status is None:
                form = parse_qs(url.query).get("format", [None])[0]
                status, said = held.answer(url.path, form)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
