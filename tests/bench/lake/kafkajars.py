"""Spark's Kafka source: four jars, by Maven, or from a folder that a variable names."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from tests.bench.model import CannotRunError
from tests.support import maven

VARIABLE: Final = "BENCH_KAFKA_JARS"
"""Names a folder of jars, for a machine whose Maven repository lacks one of them."""
_MISSING: Final = re.compile(r"Could not find artifact \S+|\S+ was not found")
_POM: Final = Path(__file__).parent / "pom.xml"


def class_path() -> str:
    """Return the class path for the driver; raises CannotRunError."""
    return os.pathsep.join(str(each) for each in sorted(_folder().glob("*.jar")))


def _folder() -> Path:
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given)
    if shutil.which("mvn") is None:
        raise CannotRunError("Spark's Kafka source needs Maven")
    try:
        return maven.jars(_POM)
    except RuntimeError as error:
        reason = _MISSING.search(str(error))
        what = reason[0] if reason else str(error).splitlines()[0]
        raise CannotRunError(f"Spark's Kafka source: {what} (or give {VARIABLE})") from error
