"""SQL over the messages of a store with DuckDB: no Java, and no session to start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakelog.errors import SettingsError
from lakelog_lake.engine_provider import VIEW, Answer
from lakelog_lake.errors import QueryFailed, StatementRefused

if TYPE_CHECKING:
    from lakelog_lake.queries.dataset import Messages

EXTRA: Final = "pip install 'lakelog-lake[duckdb]'"
_BATCH_ROWS: Final = 1 << 16


def is_installed() -> bool:
    """Whether DuckDB is installed."""
    return find_spec("duckdb") is not None


def answers(
    store: Path, statements: Iterable[str], limit: int, options: Mapping[str, str]
) -> Iterator[Answer]:
    """See :meth:`lakelog_lake.engine_provider.EngineProvider.answers`.

    Raises :class:`~lakelog.errors.SettingsError` without DuckDB or for wrong options,
    :class:`~lakelog_lake.errors.StatementRefused`, :class:`~lakelog_lake.errors.QueryFailed`, and
    the errors of reading the store.
    """
    if not is_installed():
        raise SettingsError(f"DuckDB is not installed: {EXTRA}", key="--engine")
    import duckdb

    from lakelog_lake.queries.dataset import Messages
    from lakelog_lake.reading.options import ReadOptions

    read = ReadOptions.of({**options, "path": str(store)})
    with duckdb.connect() as connection:
        # Names in statements must not refer to Python variables.
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET TimeZone = 'UTC'")  # as Spark's sessions here have it
        for statement in statements:
            messages = Messages(read)
            with _query_errors(messages):
                connection.register(VIEW, messages)
                answer = _answer(connection.sql(statement), limit)
            yield answer


def _answer(found: Any, limit: int) -> Answer:
    """Convert a relation, which is ``None`` after a statement such as CREATE."""
    import pyarrow as pa

    if found is None:
        return Answer(pa.table({}))
    if not limit:
        return Answer(found.to_arrow_table())
    with found.to_arrow_reader(min(limit + 1, _BATCH_ROWS)) as reader:
        batches, count = [], 0
        while count <= limit and (batch := _next(reader)) is not None:
            batches.append(batch)
            count += batch.num_rows
        rows = pa.Table.from_batches(batches, reader.schema)
    return Answer(rows.slice(0, limit), count > limit)


def _next(reader: Any) -> Any:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


@contextmanager
def _query_errors(messages: Messages) -> Iterator[None]:
    """Raise the error that ended a scan, or :class:`StatementRefused` or :class:`QueryFailed`."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if messages.error is not None:
            raise messages.error from None
        first = " ".join(line.strip() for line in str(error).strip().splitlines() if line.strip())
        refused = duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException
        kind = StatementRefused if isinstance(error, refused) else QueryFailed
        raise kind(f"the query failed: {first}") from error
