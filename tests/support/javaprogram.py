"""Compiles programs for RocketMQ's Java client, once for each state of their sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support import maven, required

QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""For runs of seconds: the first compiler, a collector without threads, no file of statistics."""

_LOGBACK: Final = Path(__file__).parents[1] / "oracle" / "resources" / "logback.xml"


def java_program(
    library: Path,
    sources: Sequence[Path],
    main: str,
    *arguments: str,
    home: Path,
    flags: Sequence[str] = QUICK,
) -> list[str]:
    """Return the command that runs a program; skips the test without a JDK.

    :param library: a folder of jars
    :param sources: all that are compiled together, once for their programs
    :param main: the full name of the main class
    :param home: the folder for the client's files
    :param flags: of Java
    """
    if shutil.which("javac") is None:
        required.missing("Java clients need javac")

    def compile_into(folder: Path) -> None:
        path = os.fspath(library / "*")
        maven.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), *map(str, sources)])

    state = f"{library.name}-{maven.digest(sources)}"
    classes = maven.once(maven.CACHE / f"programs-{state}", compile_into)
    return [
        *("java", "-Xmx128m", *flags, f"-Duser.home={home}"),
        f"-Drmq.logback.configurationFile={_LOGBACK}",
        "-Drocketmq.client.rebalance.waitInterval=500",
        *("-cp", os.pathsep.join([str(library / "*"), str(classes)])),
        main,
        *arguments,
    ]
