"""A service that takes payments over HTTP, settles them with a bank, and writes receipts."""
