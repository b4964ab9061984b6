"""The page for authors of plugins says of the kinds and of record batches what is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import pytest

import lakelog.hooks
import lakelog_testing
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import PROTOCOLS, Context
from lakelog.registry.loading import kind_text
from lakelog_cli.commands.plugins import TEMPLATES, PluginTemplate
from lakelog_testing.samples import messages, record_batch

PAGE: Final = (Path(__file__).parents[2] / "core/docs/guides/plugins.md").read_text()
COLUMN: Final = re.compile(r"^\| `(\w+)` \| ([\w ]+) \|", re.MULTILINE)
NO_COLUMNS: Final = {"buffer", "base_offset", "end_offset", "octets", "decoder", "packed_bodies"}
METHODS: Final = {"of_columns", "head", "take", "host_lengths", "hosts", "record", "message"}


def section(title: str) -> str:
    """The text below the heading that is, or lists, ``title``."""
    heading = rf"^##+ (?:[\w ]+, )*{title}(?:, [\w ]+)*\n"
    flags = re.MULTILINE | re.DOTALL | re.IGNORECASE
    found = re.search(rf"{heading}(.*?)(?=^##|\Z)", PAGE, flags)
    assert found is not None, title
    return found[1]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_section_names_protocol_kit_and_example_of_its_kind(template: PluginTemplate) -> None:
    text, protocol = section(kind_text(template.kind)), PROTOCOLS[template.kind]
    assert f"`{protocol.__name__}`" in text
    assert f"`{protocol.__name__}Contract`" in text
    module = protocol.__module__.replace(".", "/")
    assert f"](../../src/{module}.py)" in text
    if template.replaces:  # its template extends the one implementation
        assert f"`{template.replaces}`" in text
    else:
        assert re.search(r"\]\(\.\./\.\./\.\./(examples/\w+\.py|plugins/\w+/README\.md)\)", text)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+Contract)`", PAGE))))
def test_a_kit_that_is_named_exists(name: str) -> None:
    assert name in lakelog_testing.__all__


def test_what_make_is_given_is_the_context() -> None:
    named = set(re.findall(r"^\| `context\.(\w+)`", PAGE, re.MULTILINE))
    assert named == set(attrs.fields_dict(Context))


def test_the_table_has_every_column_of_a_record_batch() -> None:
    named = [name for name, _ in COLUMN.findall(section("The columns of a record batch"))]
    public = {name for name in {*dir(RecordBatch), "starts"} if not name.startswith("_")}
    assert set(named) == public - NO_COLUMNS - METHODS
    assert len(named) == len(set(named))


@pytest.mark.parametrize(("name", "kind"), COLUMN.findall(section("The columns of a record batch")))
def test_a_column_has_the_type_of_the_table(name: str, kind: str) -> None:
    batch = record_batch([*messages(3), lakelog.Message("orders", b"neither tag nor key")])
    column = getattr(batch, name)
    assert len(column) == 4
    if isinstance(column, np.ndarray):
        assert column.dtype.name == kind
    else:
        assert (
            " or ".join(sorted({type(each).__name__ for each in column}, reverse=True)).replace(
                "NoneType", "None"
            )
            == kind
        )
