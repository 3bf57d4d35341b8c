"""Records that wait to be written: by partition, in their order, in batches."""
