"""A whole batch in one transaction: a hundred rows, and one position for each partition."""

from sqlalchemy import text

from reactive_kafka import App, Batch

TABLE = "CREATE TABLE IF NOT EXISTS clicks (page TEXT)"
INSERT = text("INSERT INTO clicks (page) VALUES (:page)")

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "clicks": {
                "group_id": "statistics",
                "auto_offset_reset": "earliest",
                "commit_strategy": "checkpoint",
                "batch_max_records": 100,
                "batch_max_wait": "200ms",
                "checkpoint": {
                    "store": "${DATABASE:-postgresql+asyncpg://postgres@localhost/shop}"
                },
            }
        },
    }
)


@app.incoming("clicks")
async def keep(batch: Batch[dict]) -> None:
    async with batch.transaction() as connection:
        await connection.execute(INSERT, [{"page": click["page"]} for click in batch.payloads])


if __name__ == "__main__":
    app.run()
