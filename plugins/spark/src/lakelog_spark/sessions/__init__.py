"""Spark sessions: Java, jars, catalogs, and the Python packages of executors."""
