"""Iceberg tables in any catalog that a Spark session knows."""
