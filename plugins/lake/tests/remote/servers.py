"""Servers beside the tests: moto's S3 and Glue, and Iceberg's own REST catalog."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.support import fixtures, maven

BUCKET = "bucket"
_SERVER = f"{__name__.rpartition('.')[0]}.faulty_server"  # moto is imported by its process only
LONGEST_SECONDS = 60
_POM = Path(fixtures.__file__).parent / "rest_catalog" / "pom.xml"
_QUICK_START = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@attrs.frozen
class Aws:
    """:ivar url: of the server."""

    url: str

    @property
    def environment(self) -> Mapping[str, str]:
        """What who uses S3 usually has."""
        return {**_CREDENTIALS, "AWS_ENDPOINT_URL": self.url}

    def lose(self, count: int, path: str) -> None:
        """Lose so many of the next answers to what changes a ``path``, a regular expression."""
        plan = {"rate": 1.0, "most": count, "path": path, "kinds": ["lost"]}
        faults(self.url, **plan, methods=["PUT", "POST"])

    def objects(self, prefix: str) -> list[str]:
        """The keys that begin so."""
        pages = self._s3().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def content(self, key: str) -> bytes:
        """Of an object."""
        return bytes(self._s3().get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def make_bucket(self) -> None:
        self._s3().create_bucket(Bucket=BUCKET)

    def _s3(self) -> Any:
        import boto3

        names = ("aws_access_key_id", "aws_secret_access_key", "region_name")
        given = dict(zip(names, _CREDENTIALS.values(), strict=False))
        return boto3.client("s3", endpoint_url=self.url, **given)


def faults(url: str, **plan: Any) -> Counter[str]:
    """Set the plan of a server, see ``faulty_server.py``; without one it stays.

    Returns the number of faults of each kind, and of requests that are ``running``.
    """
    import requests

    body = json.dumps(plan) if plan else b""
    answer = requests.put(f"{url}/faults", data=body, timeout=LONGEST_SECONDS)
    answer.raise_for_status()
    return Counter(answer.json())


@contextmanager
def _serving(*upstream: str) -> Iterator[str]:
    command = [sys.executable, "-m", _SERVER, *upstream]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]  # of pipes
        port = process.stdout.readline().strip()
        assert process.stdout.readline() == "ready\n"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.communicate(timeout=LONGEST_SECONDS)


@contextmanager
def aws() -> Iterator[Aws]:
    """S3, with a bucket, and Glue."""
    with _serving() as url:
        found = Aws(url)
        found.make_bucket()
        yield found


@contextmanager
def rest(store: Aws, folder: Path) -> Iterator[str]:
    """Iceberg's REST catalog, with its tables in S3, behind a server with faults; its URI."""
    jars = maven.jars(_POM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        **store.environment,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'rest.db'}",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/rest",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": store.url,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
    }
    program = "org.apache.iceberg.rest.RESTCatalogServer"
    command = ["java", *_QUICK_START, "-cp", f"{jars}/*", program]
    with (folder / "rest.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _until_it_answers(f"http://127.0.0.1:{port}/v1/config", process, folder / "rest.log")
        with _serving(f"http://127.0.0.1:{port}") as url:
            yield url
    finally:
        process.kill()
        process.wait()


def _until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import requests

    end = time.monotonic() + LONGEST_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        try:
            requests.get(url, timeout=1).raise_for_status()
            return
        except requests.RequestException:
            time.sleep(0.1)


def has_java() -> bool:
    """Whether the REST catalog can be had and started."""
    return all(shutil.which(each) for each in ("java", "mvn"))
