"""How is a DataFrame written into a store? (With Spark; needs Java 17.)

    python examples/write_back.py [STORE_DIRECTORY]

Without an argument it creates a store, and deletes it afterwards.
"""

from __future__ import annotations

import sys
import tempfile

import lakelog
import lakelog_spark


def append(store: str, job: str) -> None:
    """Append a thousand rows as messages; the columns topic and body suffice."""
    spark = lakelog_spark.session()
    lakelog_spark.register(spark)
    rows = spark.range(1000).selectExpr(
        "'visits' AS topic",
        "to_json(named_struct('visitor', id)) AS body",
        "array(concat('visitor-', id)) AS keys",
    )
    # Rows are appended once per job_id, however often this is called or interrupted.
    for _ in range(2):
        rows.write.format("lakelog").mode("append").option("job_id", job).save(store)
    spark.stop()


def main(store: str) -> None:
    """Create the store if it does not exist, append to it, and read it."""
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
