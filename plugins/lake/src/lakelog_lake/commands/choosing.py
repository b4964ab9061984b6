"""The choice of the engine where none was named: Spark if installed, else processes.

One line on stderr states the choice and its reason. An installed Spark that does not work is an
error with its cause; there is no silent fallback.
"""

from __future__ import annotations

import typer

from lakelog.errors import SettingsError
from lakelog_lake.commands.options import EngineName
from lakelog_lake.engine_provider import is_installed, provider

_SPARK = EngineName.SPARK.value


def chosen(given: EngineName, *, needs_spark: bool = False) -> EngineName:
    """The engine that was named, or the best one available.

    :param needs_spark: whether an option was given that only Spark supports

    Raises :class:`~lakelog.errors.SettingsError` if Spark is needed and missing.
    """
    if given is not EngineName.AUTO:
        if needs_spark and given is not EngineName.SPARK:
            raise SettingsError("options of Spark need --engine spark", key="--engine")
        return given
    missing = _missing()
    if missing is None:
        typer.echo("lakelog: engine spark: it, PySpark and Java are installed", err=True)
        return EngineName.SPARK
    if needs_spark:
        raise SettingsError(f"options of Spark need Spark: {missing}", key="--engine")
    typer.echo(f"lakelog: engine processes, not spark: {missing}", err=True)
    return EngineName.PROCESSES


def _missing() -> str | None:
    if not is_installed(_SPARK):
        return "lakelog-spark is not installed (pip install 'lakelog[spark]')"
    return provider(_SPARK).missing()
