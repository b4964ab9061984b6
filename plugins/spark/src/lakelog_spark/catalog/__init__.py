"""Iceberg tables in any catalog of a Spark session."""
