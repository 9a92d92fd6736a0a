"""What happens at a source while its stream runs, and is not in it: columns, names, partitions, members."""
