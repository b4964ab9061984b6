"""What tables of every kind have in common: columns, partitions, positions, files."""
