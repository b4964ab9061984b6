"""Sessions of Spark: Java, jars, catalogs, and what executors need."""
