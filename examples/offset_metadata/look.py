"""Prints the positions of a group with their strings, from another program.

``python look.py sums`` shows the group ``sums``.
"""

import asyncio
import sys

from reactive_kafka import App

app = App({"kafka": {"bootstrap_servers": "localhost:9092"}})


async def look(group: str) -> None:
    offsets = app.offsets(group)
    for partition, position in sorted((await offsets.positions()).items()):
        print(partition, position, await offsets.metadata(partition), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which group? python look.py GROUP")
    asyncio.run(look(sys.argv[1]))
