"""How do I write a DataFrame into a store? (By Spark; needs Java 17.)

    python examples/write_back.py [STORE_DIRECTORY]

Without an argument it makes a store, and throws it away.
"""

from __future__ import annotations

import sys
import tempfile

import lakelog
import lakelog_spark


def append(store: str, job: str) -> None:
    """A thousand rows as messages; of columns, topic and body are enough."""
    spark = lakelog_spark.session()
    lakelog_spark.register(spark)
    rows = spark.range(1000).selectExpr(
        "'visits' AS topic",
        "to_json(named_struct('visitor', id)) AS body",
        "array(concat('visitor-', id)) AS keys",
    )
    # Rows are appended once under one job_id, however often this is called or is stopped.
    for _ in range(2):
        rows.write.format("lakelog").mode("append").option("job_id", job).save(store)
    spark.stop()


def main(store: str) -> None:
    """Make the store if it is not there, append to it, and look at what it holds."""
    lakelog.open(store, segment_size_bytes="1MiB").close()
    append(store, "visits-of-today")
    with lakelog.open(store, mode="read") as opened:
        messages = list(opened.scan())
    print(len(messages), "messages; the last one:", messages[-1].keys, messages[-1].body.decode())


if __name__ == "__main__":
    if missing := lakelog_spark.missing_java():
        print(missing)
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(f"{temporary}/store")
