"""The common parts of all kinds of tables: columns, partitions, positions, files."""
