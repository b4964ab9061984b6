"""What landing and reading by Spark ask of a log: where it ends, and which records are wanted."""
