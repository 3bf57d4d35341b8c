"""The life of a record: from the log to the commit, and the ways of a record that is nacked."""

from __future__ import annotations

from docs_tools.pictures.canvas import Canvas

TOP = 40
HEIGHT = 62
WIDTH = 96
STEP = 128
LEFT = 16


def life_of_a_record() -> str:
    """Draw the steps in a row, and what a nack leads to below them."""
    canvas = Canvas(
        768,
        336,
        "A record goes from the log to a lane and a handler. Its ack settles it, and then a commit "
        "stores the position behind it. A nack leads to retries, a retry topic or a dead letter.",
    )
    steps = (
        ("partition\nthe log in Kafka", "plain"),
        ("fetch\nwaits when full", "blue"),
        ("lane\none key, in order", "blue"),
        ("handler\nyour function", "amber"),
        ("window\nsettled offsets", "green"),
        ("commit\nfor the group", "plain"),
    )
    middle = TOP + HEIGHT / 2
    for number, (text, kind) in enumerate(steps):
        x = LEFT + number * STEP
        canvas.labelled(x, TOP, WIDTH + 8, HEIGHT, text, kind)
        if number:
            kind_of_arrow = "green" if number == 4 else "plain"
            canvas.arrow((x - STEP + WIDTH + 8, middle), (x, middle), kind=kind_of_arrow)
    centre = LEFT + 3 * STEP + (WIDTH + 8) / 2
    window = LEFT + 4 * STEP + (WIDTH + 8) / 2
    lane = LEFT + 2 * STEP + (WIDTH + 8) / 2
    canvas.text(LEFT + 4 * STEP - 12, middle - 8, "ack", style="small")
    below = TOP + HEIGHT
    canvas.arrow((centre, below), (centre, 168), kind="red")
    canvas.text(centre + 8, 140, "nack: it raised", anchor="start", style="small")
    canvas.labelled(centre - 72, 168, 144, 48, "failure strategy\nretries first", "red")
    # Retries in place: back to the lane.
    canvas.arrow((centre - 72, 192), (lane, 192), (lane, below), kind="red", is_dashed=True)
    canvas.text(lane - 8, 152, "retry in place:", anchor="end", style="small")
    canvas.text(lane - 8, 168, "the lane waits,", anchor="end", style="small")
    canvas.text(lane - 8, 184, "other lanes run", anchor="end", style="small")
    # The four strategies. The first is the default, and leaves the record unsettled.
    ways = (
        ("fail\nthe channel stops", "red"),
        ("retry topic\nit comes again later", "plain"),
        ("dead letter topic\nkept for a person", "plain"),
        ("ignore\nlogged and counted", "plain"),
    )
    canvas.line((centre, 216), (centre, 240), kind="red")
    for number, (text, kind) in enumerate(ways):
        x = 60 + number * 172
        canvas.labelled(x, 264, 144, 48, text, kind)
        canvas.arrow((centre, 240), (x + 72, 240), (x + 72, 264), kind="red")
    # The last three settle the record.
    right = 60 + 3 * 172 + 144
    canvas.arrow((right, 288), (right + 18, 288), (right + 18, 132), (window, 132), (window, below))
    canvas.text(window + 10, 152, "written or logged:", anchor="start", style="small")
    canvas.text(window + 10, 168, "then it is settled", anchor="start", style="small")
    return canvas.svg()
