"""CRC-32C, the checksum of record batches: computed by the processor's own instruction, where a
library offers that.

The client's own takes 0.5 ns a byte, which is a twentieth of what a record of 100 bytes costs, and
a third of what one of 1,000 bytes costs.
"""

from __future__ import annotations

from aiokafka.record.util import calc_crc32c

try:
    from google_crc32c.cext import value as crc32c  # type: ignore[attr-defined]
except ImportError:
    # The extra is not installed, or has no compiled part here.
    crc32c = calc_crc32c

__all__ = ["crc32c"]
