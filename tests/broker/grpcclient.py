"""RocketMQ's Java client of the gRPC protocol, compiled once for each state of its source."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support import maven, required

PATIENCE_S: Final = 240
_FOLDER: Final = Path(__file__).parent / "java" / "grpc"
_MARK: Final = "= "


def outcomes(endpoint: str, security: str, home: Path) -> dict[str, str]:
    """What ``GrpcClient`` saw at a broker; skips the test without a JDK or Maven.

    :param security: ``ssl`` or ``plain``
    """
    absent = [each for each in ("javac", "mvn") if shutil.which(each) is None]
    if absent:
        required.missing(f"a Java client needs {' and '.join(absent)}")
    library, source = maven.jars(_FOLDER / "pom.xml"), _FOLDER / "GrpcClient.java"
    path = os.fspath(library / "*")

    def compile_into(folder: Path) -> None:
        maven.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(source)])

    state = f"{library.name}-{maven.digest([source])}"
    classes = maven.once(maven.CACHE / f"grpc-client-{state}", compile_into)
    done = subprocess.run(
        [
            *("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}"),
            *("-cp", os.pathsep.join([path, str(classes)])),
            *("lakelog.broker.GrpcClient", endpoint, security),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        each.removeprefix(_MARK) for each in done.stdout.splitlines() if each.startswith(_MARK)
    ]
    return dict(each.split(": ", 1) for each in lines)
