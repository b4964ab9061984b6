"""Runs RocketMQ's gRPC clients: programs in Java, Go and JavaScript.

Each is built once for each state of its source. Its packages come from the registry of its
language; Go keeps them, and what it compiled, in the user's caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support import maven, required
from tests.support.javaprogram import QUICK

PATIENCE_S: Final = 240
_HERE: Final = Path(__file__).parent
_MARK: Final = "= "


def java_outcomes(endpoint: str, security: str, home: Path) -> dict[str, str]:
    """Return the results of ``GrpcClient`` by case; skips the test without a JDK or Maven.

    :param security: ``ssl`` or ``plain``
    """
    _need("a Java client", "javac", "mvn")
    folder = _HERE / "java" / "grpc"
    library, source = maven.jars(folder / "pom.xml"), folder / "GrpcClient.java"
    path = os.fspath(library / "*")

    def compile_into(folder: Path) -> None:
        maven.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(source)])

    state = f"{library.name}-{maven.digest([source])}"
    classes = maven.once(maven.CACHE / f"grpc-client-{state}", compile_into)
    command = [
        *("java", "-Xmx128m", *QUICK, f"-Duser.home={home}"),
        *("-cp", os.pathsep.join([path, str(classes)])),
        *("lakelog.broker.GrpcClient", endpoint, security),
    ]
    return _outcomes(command, home)


def go_outcomes(endpoint: str, home: Path) -> dict[str, str]:
    """Return the results of the Go program by case, over TLS; skips the test without Go."""
    _need("a Go client", "go")
    folder = _HERE / "go"
    sources = [folder / name for name in ("go.mod", "go.sum", "main.go")]
    environ = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}

    def build_into(target: Path) -> None:
        maven.run(["go", "build", "-o", str(target), "."], folder, {**os.environ, **environ})

    built = maven.once(maven.CACHE / f"grpc-go-{maven.digest(sources)}", build_into)
    return _outcomes([str(built / "client"), endpoint], home)


def node_outcomes(endpoint: str, home: Path) -> dict[str, str]:
    """Return the results of the JavaScript program by case; skips the test without Node."""
    _need("a Node client", "node", "npm")
    folder = _HERE / "node"
    sources = [folder / name for name in ("package.json", "client.js")]
    options = (
        "--no-package-lock",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    )

    def install_into(target: Path) -> None:
        for each in sources:
            shutil.copy(each, target)
        maven.run(["npm", "install", "--prefix", str(target), *options])

    installed = maven.once(maven.CACHE / f"grpc-node-{maven.digest(sources)}", install_into)
    return _outcomes(["node", str(installed / "client.js"), endpoint], home)


def _need(what: str, *programs: str) -> None:
    absent = [each for each in programs if shutil.which(each) is None]
    if absent:
        required.missing(f"{what} needs {' and '.join(absent)}")


def _outcomes(command: list[str], home: Path) -> dict[str, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "HOME": str(home), "rocketmq.client.logRoot": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        each.removeprefix(_MARK) for each in done.stdout.splitlines() if each.startswith(_MARK)
    ]
    return dict(each.split(": ", 1) for each in lines)
