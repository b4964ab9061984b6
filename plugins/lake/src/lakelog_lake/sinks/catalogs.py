"""The catalogs of Iceberg tables configured for pyiceberg: REST, Glue, Hive, SQL and others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from lakelog.errors import SettingsError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SYNCED: Final = {"py-io-impl": "lakelog_lake.tables.synced_io.SyncedFileIO"}
"""The subclass of pyiceberg's Arrow FileIO that syncs local files."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ANY_REGION: Final = "us-east-1"


def default_catalog() -> str:
    """The name of pyiceberg's default catalog."""
    from pyiceberg.utils.config import Config

    return Config().get_default_catalog_name()


def configured_catalog(name: str, given: Mapping[str, str]) -> Catalog:
    """Load the catalog ``name`` from pyiceberg's files and environment variables.

    :param given: properties that override the configured ones

    Raises :class:`~lakelog.errors.SettingsError` if it is not configured or a package is missing,
    and pyiceberg's errors if it cannot be reached.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.utils.config import Config

    known = Config().get_catalog_config(name)
    if known is None and not given:
        raise SettingsError(
            f"pyiceberg has no catalog {name!r}: give its uri and type in ~/.pyiceberg.yaml, as "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and so on, or by --storage uri=…",
            key="--to",
        )
    properties = {**cast("dict[str, str]", known or {}), **given}
    try:
        return load_catalog(name, **{**SYNCED, **_from_environment(properties), **properties})
    except NotInstalledError as error:
        raise SettingsError(f"the catalog {name!r} needs a package: {error}", key="--to") from error
    except ValueError as error:
        raise SettingsError(f"the catalog {name!r} cannot be used: {error}", key="--to") from error


def _from_environment(properties: Mapping[str, object]) -> dict[str, str]:
    """S3 properties from environment variables that Arrow does not read by itself."""
    found = {}
    endpoint = _first(_ENDPOINTS)
    if endpoint is not None:
        found["s3.endpoint"] = endpoint
    region = _first(_REGIONS) or (_ANY_REGION if {"s3.endpoint"} & {*properties, *found} else None)
    if region is not None:
        found["client.region"] = region
    return found


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
