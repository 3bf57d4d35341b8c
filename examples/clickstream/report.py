"""Prints the clicks of each page, as PostgreSQL and the parquet files have them."""

from __future__ import annotations

import psycopg
import pyarrow.parquet
from clickstream import FOLDER, POSTGRES


def main() -> None:
    with psycopg.connect(POSTGRES) as connection:
        rows = connection.execute("SELECT page, sum(clicks) FROM hourly GROUP BY page").fetchall()
    counts = pyarrow.parquet.read_table(FOLDER).group_by("page").aggregate([("clicks", "sum")])
    in_parquet = {row["page"]: row["clicks_sum"] for row in counts.to_pylist()}
    print(f"{'page':<10} {'PostgreSQL':>10} {'parquet':>10}")
    for page, clicks in sorted(rows):
        print(f"{page:<10} {clicks:>10} {in_parquet.get(page, 0):>10}")


if __name__ == "__main__":
    main()
