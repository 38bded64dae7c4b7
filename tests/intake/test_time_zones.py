"""A week is the same one on every machine, whatever its time zone."""

import json
import os
import sqlite3
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week

ZONES = ("UTC", "America/New_York", "Asia/Tokyo")
MONDAYS = pd.to_datetime(["2026-08-17", "2026-10-26"])  # in summer and in winter
RIGHT, REFUSED = ["2026-W34", "2026-W44"], [None, None]

SCRIPT = """
import datetime as dt, json, sqlite3, sys
import duckdb
from ew_pipeline.intake.tables import open_table, week_texts
from ew_pipeline.core.schema import SALES

sqlite3.register_converter("timestamptz", lambda cell: dt.datetime.fromisoformat(cell.decode()).astimezone())
found = {}
for name, spec in json.load(sys.stdin).items():
    with duckdb.connect() as connection:
        opened = open_table(SALES, spec, connection)
        weeks = week_texts(opened, "week").items()
        found[name] = sorted((text, str(week) if week else None) for text, week in weeks)
print(json.dumps(found))
"""


def rows(weeks):
    return pd.DataFrame({"store_id": ["1", "2"], "sku_id": "K", "week": weeks, "units": 1})


def local(zone):
    return MONDAYS.tz_localize(zone)


def sources(folder):
    """Files and databases with two weeks each, and which weeks they are."""
    berlin, offset = local("Europe/Berlin"), local("-05:30")
    utc = berlin.tz_convert("UTC")

    def parquet(name, weeks):
        rows(weeks).to_parquet(folder / f"{name}.parquet", index=False)
        return str(folder / f"{name}.parquet")

    def spark(name, **options):
        table = pa.Table.from_pandas(rows(utc), preserve_index=False)
        pq.write_table(table, folder / f"{name}.parquet", store_schema=False, **options)
        return str(folder / f"{name}.parquet")

    def csv(name, texts):
        rows(texts).to_csv(folder / f"{name}.csv", index=False)
        return str(folder / f"{name}.csv")

    def database(name, times):
        with sqlite3.connect(folder / f"{name}.db") as connection:
            connection.execute("CREATE TABLE sales (store_id, sku_id, week timestamptz, units)")
            cells = [("1", "K", time.isoformat(), 1) for time in times]
            connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", cells)
        return f"sqlite:///{folder / name}.db?detect_types={sqlite3.PARSE_DECLTYPES}#table=sales"

    (folder / "countries").mkdir()
    rows(berlin).to_parquet(folder / "countries" / "a.parquet")
    rows(local("America/Chicago")).to_parquet(folder / "countries" / "b.parquet")
    return {
        "naive": (parquet("naive", MONDAYS), RIGHT),
        "naive late": (parquet("late", MONDAYS + pd.Timedelta(hours=23)), RIGHT),
        "UTC": (parquet("utc", local("UTC")), RIGHT),
        "Berlin": (parquet("berlin", berlin), RIGHT),
        "Berlin, nanoseconds": (parquet("nano", berlin.as_unit("ns")), RIGHT),
        "offset": (parquet("offset", offset), RIGHT),
        "Berlin's midnights in UTC": (parquet("shifted", utc), REFUSED),
        "Spark": (spark("spark"), REFUSED),
        "Spark, INT96": (spark("int96", use_deprecated_int96_timestamps=True), REFUSED),
        "two zones": (str(folder / "countries"), REFUSED * 2),
        "text": (csv("text", [time.isoformat() for time in berlin]), RIGHT),
        "text in UTC": (csv("text_utc", [f"{time:%Y-%m-%d %H:%M:%S}Z" for time in utc]), REFUSED),
        "database": (database("midnights", local("UTC")), RIGHT),
        "database, other midnights": (database("others", berlin), REFUSED),
    }


@pytest.mark.server
@pytest.mark.parametrize("zone", ZONES)
def test_weeks_do_not_depend_on_the_time_zone_of_the_machine(zone, tmp_path):
    made = sources(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "TZ": zone},
        input=json.dumps({name: spec for name, (spec, _) in made.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: [week for _, week in weeks] for name, weeks in found.items()} == {
        name: weeks for name, (_, weeks) in made.items()
    }
    assert found["Berlin's midnights in UTC"][0][0] == "2026-08-16 22:00:00 UTC"


@pytest.mark.parametrize(
    "text", ["2026-08-17T00:00Z", "2026-08-17 00:00:00.000+02", "2026-08-17 00:00:00 Europe/Berlin"]
)
def test_midnight_in_a_zone_is_the_date_that_is_written(text):
    assert Week.parse(text) == Week(2026, 34)


@pytest.mark.parametrize(
    "text", ["2026-08-16T22:00Z", "2026-08-16 22:00:00.000+00:00", "2026-08-16 18:00 EST"]
)
def test_another_time_in_a_zone_is_no_week(text):
    with pytest.raises(UsageError, match="not midnight in the zone"):
        Week.parse(text)
