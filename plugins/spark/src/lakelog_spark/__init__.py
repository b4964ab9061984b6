"""Apache Spark reads the store directories of lakelog and RocketMQ.

>>> import lakelog_spark
>>> spark = lakelog_spark.session()                         # doctest: +SKIP
>>> lakelog_spark.register(spark)                           # doctest: +SKIP
>>> spark.read.format("lakelog").load("STORE").count()      # doctest: +SKIP
"""

from __future__ import annotations

from lakelog_spark.local import missing_java, session
from lakelog_spark.source import register

__all__ = ["missing_java", "register", "session"]
