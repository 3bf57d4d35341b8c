"""Shows the site while its pages are written: ``make docs-serve``, ended by Ctrl-C.

Zensical watches build/docs and builds what changes there. This program watches the files that
build/docs is made from.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from docs_tools import stage

LOOK_EVERY_S = 1.0


def main() -> int:
    """Serve until Ctrl-C. Returns the exit code of Zensical."""
    # A signal ends the server, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    stage.write()
    config = str(stage.TARGET / "mkdocs.yml")
    server = subprocess.Popen([sys.executable, "-m", "zensical", "serve", "--config-file", config])
    try:
        while server.poll() is None:
            time.sleep(LOOK_EVERY_S)
            stage.write()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
