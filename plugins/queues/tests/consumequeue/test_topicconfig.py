"""Which topics have queues of batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.units.topicconfig import batch_topics

GOOD = '{"topicConfigTable":{"b":{"attributes":{"queue.type":"BatchCQ"}},"s":{"attributes":{}}}}'


@pytest.mark.parametrize(
    ("text", "backup", "expected"),
    [
        (GOOD, None, {"b"}),
        (None, None, set()),
        (GOOD[:40], GOOD, {"b"}),
        ("", GOOD, {"b"}),
        (None, GOOD, {"b"}),
        (GOOD[:40], None, set()),
        ("[]", None, set()),
        ('{"topicConfigTable":null}', None, set()),
        ('{topicConfigTable:{b:{0:1, attributes : {"queue.type":"BatchCQ"}}}}', None, {"b"}),
        ('{"topicConfigTable":{"a{b:c":{"attributes":{"queue.type":"BatchCQ"}}}}', None, {"a{b:c"}),
        ('{"topicConfigTable":{"s":{"attributes":{"queue.type":"SimpleCQ"}}}}', None, set()),
    ],
)
def test_batch_topics(
    tmp_path: Path, text: str | None, backup: str | None, expected: set[str]
) -> None:
    (tmp_path / "config").mkdir()
    for name, content in (("topics.json", text), ("topics.json.bak", backup)):
        if content is not None:
            (tmp_path / "config" / name).write_text(content)
    assert batch_topics(RealFileSystem(), tmp_path) == expected
