"""What is fetched: from the bytes of an answer to records."""
