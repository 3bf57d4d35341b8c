"""What a worker does with the lanes it takes: call a handler record by record, or in batches."""
