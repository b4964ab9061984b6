"""Object stores and catalogs, each served by a process of its own for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.lake.tests.remote import servers, somewhere
from plugins.lake.tests.remote.somewhere import Somewhere
from tests.support import required


@pytest.fixture(scope="session")
def aws() -> Iterator[servers.Aws]:
    """S3 and Glue."""
    with servers.aws() as running:
        yield running


@pytest.fixture(scope="session")
def rest(aws: servers.Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A REST catalog."""
    if not servers.has_java():
        required.missing("no Java or Maven here")
    with servers.rest(aws, tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture
def place(request: pytest.FixtureRequest, aws: servers.Aws, tmp_path: Path) -> Somewhere:
    """A table that is not there yet, in the kind of place that the test names."""
    if request.param == "delta":
        return somewhere.delta(aws)
    if request.param == "rest":
        uri = request.getfixturevalue("rest")
        return somewhere.iceberg(aws, "rest", {"uri": uri})
    warehouse = {"warehouse": f"s3://{servers.BUCKET}"}
    if request.param == "glue":
        given = {"glue.endpoint": aws.url, "glue.region": "us-east-1"}
        given |= {"glue.access-key-id": "key", "glue.secret-access-key": "secret"}
        return somewhere.iceberg(aws, "glue", {**given, **warehouse})
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    return somewhere.iceberg(aws, "sql", {"uri": uri, **warehouse})
