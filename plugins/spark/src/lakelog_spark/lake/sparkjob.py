"""What Spark says when it ends a job or refuses a statement, as an error in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakelog_spark.lake.errors import SparkFailed, StatementRefused

_SPARKS_OWN: Final = "SQLQueryContextLogger"
_OURS: Final = re.compile(r"^(?:lakelog_spark|lakelog)\.[\w.]*errors\.\w+: (.*)$", re.MULTILINE)
_STATEMENT: Final = re.compile(r";?\s*line \d+ pos \d+.*", re.DOTALL)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise :class:`SparkFailed` for what Spark raises inside of the block.

    It is a :class:`StatementRefused` where Spark did not begin with the statement.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import AnalysisException, PySparkException

    logger = logging.getLogger(_SPARKS_OWN)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # it prints the error too, as JSON
    try:
        yield
    except (PySparkException, Py4JError) as error:
        kind = StatementRefused if isinstance(error, AnalysisException) else SparkFailed
        raise kind(f"{what}: {_reason(str(error))}") from error
    finally:
        logger.setLevel(level)


def _reason(text: str) -> str:
    """The line of lakelog's own error, if a task met one; else the first line."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line for line in _STATEMENT.sub("", text.strip()).splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"
