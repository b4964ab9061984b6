"""Typed bodies of every format in every kind of table, beside their dead letters."""

from __future__ import annotations

import json
from pathlib import Path

from lakelog import Message
from lakelog_lake.bodies import parser_for
from lakelog_lake.landing.dispatcher import LandingSource
from plugins.lake.tests.bodies import avroschema, protoschema
from plugins.lake.tests.bodies.parsing import rows_of
from plugins.lake.tests.landing.table_specs import land_spec, per_topic, read_topic
from plugins.lake.tests.stores import open_small

DDL = (
    "id bigint not null, at timestamp, due date, x double, user struct<name: string, l: array<int>>"
)
JSON = b'{"id": 1, "at": "2026-01-02T03:04:05Z", "user": {"name": "x", "l": [1, null]}}'
GOOD = 20


def test_all_formats(kind: str, tmp_path: Path) -> None:
    bodies = {
        "json": JSON,
        "avro": avroschema.event(),
        "protobuf": protoschema.event(),
        "string": b"text",
    }
    (tmp_path / "x.ddl").write_text(DDL)
    (tmp_path / "x.avsc").write_text(json.dumps(avroschema.SCHEMA))
    (tmp_path / "x.desc").write_bytes(protoschema.descriptor_set())
    parsers = {
        "json": parser_for(f"json:{tmp_path}/x.ddl"),
        "avro": parser_for(f"avro:{tmp_path}/x.avsc"),
        "protobuf": parser_for(f"protobuf:{tmp_path}/x.desc#shop.Event"),
        "string": parser_for("string"),
    }
    with open_small(tmp_path / "store") as store:
        for topic, body in bodies.items():
            store.put_batch([Message(topic, body)] * GOOD + [Message(topic, b"\xff\xff")])
    land_spec(LandingSource(tmp_path / "store", "S"), per_topic(kind, tmp_path / "t", parsers))
    for topic, parser in parsers.items():
        rows = read_topic(kind, tmp_path / "t", topic)
        columns = parser.fields.names
        dead = read_topic(kind, tmp_path / "t", topic, "_dead_letters")
        assert dead["body"].to_pylist() == [b"\xff\xff"]
        assert dead["error"].null_count == 0
        assert rows.select(columns).to_pylist() == rows_of(parser, bodies[topic]) * GOOD
