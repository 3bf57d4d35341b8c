"""``python -m bookshop``: the whole shop, until Ctrl-C."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import uvicorn

# The embedded broker forgets its topics at the end, so the database must not outlive it.
if "BOOKSHOP_KAFKA" not in os.environ:
    database = Path(tempfile.mkdtemp(prefix="bookshop-")) / "bookshop.db"
    os.environ.setdefault("BOOKSHOP_DATABASE", str(database))

# The configuration file refers to the variable.
from bookshop.service import web

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
for library in ("aiokafka", "py4j", "uvicorn.access"):
    logging.getLogger(library).setLevel(logging.WARNING)
port = int(os.environ.get("BOOKSHOP_PORT", "8000"))
uvicorn.run(web, host="127.0.0.1", port=port, log_config=None)
