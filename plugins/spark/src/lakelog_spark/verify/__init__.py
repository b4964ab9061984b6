"""The comparison of a table with its log as a Spark job."""
