"""The built-in checkpoint stores: SQLite and PostgreSQL, Redis, files, memory."""
