"""The public names as typed code: mypy checks it (``make types``), and nothing runs it."""
