"""A batch for Spark: its ranges are planned, stored, run by executors, and then acked."""

from __future__ import annotations

from docs_tools.pictures.canvas import Canvas


def spark_batch() -> str:
    """Draw the four steps in this process above, and what Spark and Kafka do below."""
    canvas = Canvas(
        768,
        316,
        "A batch: this process plans ranges of offsets, stores the plan in Kafka, and hands a "
        "thread the job. Executors of Spark read the ranges and write. When the function returns, "
        "the records are acked and the position is committed.",
    )
    canvas.text(16, 24, "this process", anchor="start", style="soft")
    steps = (
        ("plan\nranges of offsets", "blue"),
        ("store the plan\nwith the position", "blue"),
        ("job in a thread\nyour function(df, batch)", "amber"),
        ("ack\nall records of it", "green"),
        ("commit\nbehind the ranges", "green"),
    )
    xs = (16, 158, 308, 496, 628)
    widths = (118, 126, 164, 108, 124)
    for number, (text, kind) in enumerate(steps):
        canvas.labelled(xs[number], 36, widths[number], 56, text, kind)
        if number:
            canvas.arrow((xs[number - 1] + widths[number - 1], 64), (xs[number], 64))
    canvas.text(16, 210, "Kafka", anchor="start", style="soft")
    canvas.labelled(16, 218, 118, 62, "topic\n0: 100 to 180\n1: 40 to 90")
    canvas.labelled(158, 218, 126, 62, "group\nposition and plan")
    canvas.text(308, 132, "Spark", anchor="start", style="soft")
    canvas.labelled(308, 142, 76, 44, "executor\nrange 0")
    canvas.labelled(396, 142, 76, 44, "executor\nrange 1")
    canvas.labelled(308, 218, 164, 62, "sink\nrows with the range's id")
    canvas.arrow((346, 92), (346, 142))
    canvas.arrow((434, 92), (434, 142))
    canvas.arrow((346, 186), (346, 218))
    canvas.arrow((434, 186), (434, 218))
    # What executors read, and what the group stores.
    canvas.arrow((75, 218), (75, 164), (308, 164), is_dashed=True)
    canvas.text(86, 180, "executors read", anchor="start", style="small")
    canvas.arrow((221, 92), (221, 218), kind="blue")
    canvas.arrow((690, 92), (690, 300), (221, 300), (221, 280), kind="green")
    canvas.text(210, 116, "after a crash the next owner", anchor="end", style="small")
    canvas.text(210, 132, "runs the same ranges", anchor="end", style="small")
    canvas.arrow((472, 80), (484, 80), (484, 116), (560, 116), kind="red")
    canvas.text(566, 114, "it raised:", anchor="start", style="small")
    canvas.text(566, 130, "smaller batches,", anchor="start", style="small")
    canvas.text(566, 146, "then dead letters", anchor="start", style="small")
    return canvas.svg()
