"""The whole package in one picture, for the first page."""

from __future__ import annotations

from docs_tools.pictures.canvas import Canvas

STATES = (("ada", "done", "green"), ("bob", "runs", "amber"), ("eve", "runs", "amber"))
"""Of each lane: its key, and how its handler is drawn."""


def overview() -> str:
    """Draw Kafka on the left, handlers in the middle, and what comes out on the right."""
    canvas = Canvas(
        768,
        300,
        "Records of a topic go through lanes to async handlers. Only the position behind finished "
        "records is committed. Results go to a topic, failed records to a dead letter topic.",
    )
    canvas.text(16, 28, "Kafka", anchor="start", style="soft")
    canvas.labelled(16, 40, 128, 150, "orders\ntopic\n3 partitions")
    canvas.text(196, 28, "your process", anchor="start", style="soft")
    canvas.box(184, 40, 396, 188, "empty")
    for number, (key, state, kind) in enumerate(STATES):
        y = 54 + number * 46
        canvas.arrow((144, y + 17), (200, y + 17))
        canvas.labelled(200, y, 118, 34, f"lane: key {key}", "blue")
        canvas.arrow((318, y + 17), (350, y + 17))
        canvas.labelled(350, y, 112, 34, f"handler: {state}", kind)
    canvas.arrow((462, 71), (492, 71), kind="green")
    canvas.labelled(492, 54, 76, 126, "window\nwhat is\ndone", "green")
    canvas.arrow((462, 117), (492, 117), kind="green")
    canvas.arrow((462, 163), (492, 163), kind="green")
    canvas.text(
        200, 214, "bounded in flight; paused and resumed by itself", anchor="start", style="soft"
    )
    # The way back: the commit.
    canvas.arrow((530, 180), (530, 262), (80, 262), (80, 190), kind="green")
    canvas.text(300, 254, "commit: never past a record that is not done", style="small")
    # What comes out.
    canvas.text(632, 28, "Kafka", anchor="start", style="soft")
    canvas.labelled(620, 40, 132, 50, "invoices\nwhat handlers return")
    canvas.labelled(620, 104, 132, 50, "retry topic\nhandled again later")
    canvas.labelled(620, 168, 132, 50, "dead letters\nwith the reason")
    canvas.arrow((580, 65), (620, 65), kind="green")
    canvas.arrow((580, 129), (620, 129), kind="red")
    canvas.arrow((580, 193), (620, 193), kind="red")
    canvas.text(620, 250, "and always: health,", anchor="start", style="soft")
    canvas.text(620, 266, "metrics, events", anchor="start", style="soft")
    return canvas.svg()
