"""A driver that has no JVM: reads a store by Spark Connect, and says what it found.

Its only argument is JSON: ``remote``, ``store``, ``ship``. So is what it prints.
"""

from __future__ import annotations

import json
import sys

import lakelog_spark


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = lakelog_spark.session(remote=given["remote"])
    if given["ship"]:
        lakelog_spark.ship(spark)
    lakelog_spark.register(spark)
    frame = spark.read.format("lakelog").load(given["store"])
    said = {
        "session": type(spark).__module__,
        "rows": frame.count(),
        "filtered": frame.where("topic = 'topic-1' AND queue_offset < 5").count(),
        "by_key": spark.read.format("rocketmq").option("key", "key-7").load(given["store"]).count(),
        "offsets": sorted(row.physical_offset for row in frame.select("physical_offset").collect()),
    }
    spark.stop()
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
