"""An analyst's nightly report: joins, pivots, rolling means and Parquet files with pandas and pyarrow."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SEED = 20240711
SALES = 4_000
DAYS = 90
REGIONS = ("north", "south", "east", "west")


def main() -> None:
    """Create the report from new random sales, endlessly."""
    draw = np.random.default_rng(SEED)
    articles = new_articles(draw)
    while True:
        sales = new_sales(draw)
        joined = sales.merge(articles, how="left", on="article")
        joined["turnover"] = joined["count"] * joined["price"]
        per_day = daily(joined)
        regional(joined)
        weekly_text(per_day)
        stored(joined)


def new_articles(draw: np.random.Generator) -> pd.DataFrame:
    """Return a price list."""
    names = [f"article-{number}" for number in range(200)]
    groups = pd.Categorical([f"group-{number % 12}" for number in range(200)])
    return pd.DataFrame({"article": names, "price": draw.uniform(1, 90, 200).round(2), "group": groups})


def new_sales(draw: np.random.Generator) -> pd.DataFrame:
    """Return sales of some days, with a few missing values."""
    days = pd.Timestamp("2024-04-01") + pd.to_timedelta(draw.integers(0, DAYS, SALES), unit="D")
    sales = pd.DataFrame(
        {
            "day": days,
            "region": draw.choice(REGIONS, SALES),
            "article": [f"article-{number}" for number in draw.integers(0, 220, SALES)],
            "count": draw.integers(1, 12, SALES).astype(float),
        }
    )
    sales.loc[draw.integers(0, SALES, 40), "count"] = np.nan
    return sales.fillna({"count": 1.0})


def daily(joined: pd.DataFrame) -> pd.DataFrame:
    """Return turnover per day with a rolling mean and the change to the week before."""
    per_day = joined.groupby("day", as_index=False)["turnover"].sum().set_index("day").asfreq("D")
    per_day["mean"] = per_day["turnover"].rolling(7, min_periods=1).mean()
    per_day["change"] = per_day["turnover"].pct_change(7, fill_method=None)
    return per_day


def regional(joined: pd.DataFrame) -> pd.DataFrame:
    """Return turnover by region and group, largest first."""
    table = joined.pivot_table(index="region", columns="group", values="turnover", aggfunc="sum", observed=True)
    table["all"] = table.sum(axis=1)
    return table.sort_values("all", ascending=False)


def weekly_text(per_day: pd.DataFrame) -> str:
    """Return weekly turnover as text."""
    weekly = per_day.resample("W").agg({"turnover": "sum", "mean": "last"}).reset_index()
    weekly["week"] = weekly["day"].dt.strftime("%G-W%V")
    out = io.StringIO()
    weekly[["week", "turnover", "mean"]].to_csv(out, index=False, float_format="%.2f")
    return str(weekly.describe().to_string()) + out.getvalue()


def stored(joined: pd.DataFrame) -> int:
    """Write the sales as Parquet, read the large ones back, and return their number."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(joined, preserve_index=False), out, compression="zstd", row_group_size=1000)
    out.seek(0)
    table = pq.read_table(out, columns=["region", "turnover"])
    return len(table.filter(pc.greater(table["turnover"], 300.0)).group_by("region").aggregate([("turnover", "sum")]))


if __name__ == "__main__":
    main()
