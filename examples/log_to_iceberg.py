"""How does a RocketMQ directory become an Iceberg table? (With Spark; needs Java 17.)

    python examples/log_to_iceberg.py [STORE_DIRECTORY WAREHOUSE]

Without arguments it unpacks a directory of a real broker, and deletes the table afterwards.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import lakelog_spark

EXAMPLE = Path(__file__).parents[1] / "tests" / "data" / "fixtures" / "real_broker.tar.xz"
TABLE = "lake.rocketmq.messages"


def copy(store: Path, warehouse: Path) -> None:
    """Write one row per message."""
    spark = lakelog_spark.session(warehouse)
    lakelog_spark.register(spark)
    messages = spark.read.format("rocketmq").load(str(store))
    messages.writeTo(TABLE).using("iceberg").createOrReplace()
    report = f"SELECT topic, count(*) AS messages FROM {TABLE} GROUP BY topic ORDER BY topic"
    spark.sql(report).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    if missing := lakelog_spark.missing_java():
        print(missing)
    elif len(sys.argv) > 2:
        copy(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as temporary, tarfile.open(EXAMPLE) as archive:
            archive.extractall(temporary, filter="data")
            folder = Path(temporary)
            copy(folder / "real_broker" / "store", folder / "warehouse")
