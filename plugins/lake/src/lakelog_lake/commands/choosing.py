"""Which engine does the work where nobody named one: Spark where it is installed, else processes.

It is said in one line which one that is, and why. Spark that is installed and does not work is an
error with its cause, and never a reason to go on without it.
"""

from __future__ import annotations

import typer

from lakelog.errors import SettingsError
from lakelog_lake.commands.options import EngineName
from lakelog_lake.engine_provider import is_installed, provider

_SPARK = EngineName.SPARK.value


def chosen(given: EngineName, *, needs_spark: bool = False) -> EngineName:
    """The engine that was named, or the one that is here.

    :param needs_spark: whether something was asked for that only Spark can do

    Raises :class:`~lakelog.errors.SettingsError` where that lacks Spark, and what the engine says
    of a machine that has to have it.
    """
    if given is not EngineName.AUTO:
        if needs_spark and given is not EngineName.SPARK:
            raise SettingsError("what Spark is told needs --engine spark", key="--engine")
        return given
    missing = _missing()
    if missing is None:
        typer.echo("lakelog: engine spark, as lakelog-spark, PySpark and Java are here", err=True)
        return EngineName.SPARK
    if needs_spark:
        raise SettingsError(f"what Spark is told needs Spark: {missing}", key="--engine")
    typer.echo(f"lakelog: engine processes, not spark: {missing}", err=True)
    return EngineName.PROCESSES


def _missing() -> str | None:
    if not is_installed(_SPARK):
        return "lakelog-spark is not installed (pip install 'lakelog[spark]')"
    return provider(_SPARK).missing()
