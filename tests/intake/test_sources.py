"""Files, directories and databases: the same rows whatever holds them, and clear words when none does."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.intake.sources import open_source

ROWS = pd.DataFrame(
    {
        "store_id": ["007", "007", "12", "12"],
        "sku_id": ["0001", "2", "0001", "2"],
        "week": ["2026-W33", "2026-W34", "2026-W33", "2026-W34"],
        "units": [3, 0, 5, 1],
    }
)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def parquet(folder: Path) -> str:
    ROWS.to_parquet(folder / "sales.parquet")
    return str(folder / "sales.parquet")


def csv(folder: Path) -> str:
    ROWS.to_csv(folder / "sales.csv", index=False)
    return str(folder / "sales.csv")


def zipped(folder: Path) -> str:
    ROWS.to_csv(folder / "sales.csv.gz", index=False)
    return str(folder / "sales.csv.gz")


def semicolons(folder: Path) -> str:
    ROWS.to_csv(folder / "sales.csv", index=False, sep=";")
    return str(folder / "sales.csv")


def windows(folder: Path) -> str:
    text = ROWS.to_csv(index=False, sep="\t", lineterminator="\r\n")
    (folder / "sales.csv").write_bytes(text.encode("utf-8-sig"))
    return str(folder / "sales.csv")


def csv_folders(folder: Path) -> str:
    for store, part in ROWS.groupby("store_id"):
        (folder / "sales" / f"store_id={store}").mkdir(parents=True)
        part.drop(columns="store_id").to_csv(folder / "sales" / f"store_id={store}" / "0.csv", index=False)
    return str(folder / "sales")


def parquet_parts(folder: Path) -> str:
    for week, part in ROWS.groupby("week"):
        (folder / "sales" / f"week={week}").mkdir(parents=True)
        part = part.drop(columns="week")
        part.to_parquet(folder / "sales" / f"week={week}" / "0.parquet", index=False)
    (folder / "sales" / "_SUCCESS").touch()
    (folder / "sales" / ".hidden.csv").touch()
    return str(folder / "sales")


def csv_parts(folder: Path) -> str:
    (folder / "sales").mkdir()
    ROWS[:1][["units", "week", "sku_id", "store_id"]].to_csv(folder / "sales" / "a.csv", index=False)
    ROWS[1:].to_csv(folder / "sales" / "b.csv.gz", index=False)
    return str(folder / "sales")


def table(folder: Path) -> str:
    with sqlite3.connect(folder / "s.db") as database:
        ROWS.to_sql("sales", database, index=False)
    return f"sqlite:///{folder / 's.db'}#table=sales"


def query(folder: Path) -> str:
    table(folder)
    wanted = "select * from sales where store_id <> 'a:b' and sku_id not like '%z%';"
    return f"sqlite:///{folder / 's.db'}#query={wanted}"


KINDS = [parquet, csv, zipped, semicolons, windows, parquet_parts, csv_parts, csv_folders, table, query]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_hands_over_the_same_rows(kind, tmp_path, connection):
    source = open_source(kind(tmp_path), connection)
    assert set(source.columns) == set(ROWS.columns)
    names = list(ROWS.columns)
    assert source.values("week") == {"2026-W33": 2, "2026-W34": 2}
    relation = source.relation(names, ["2026-W33", "2026-W34"])
    found = connection.execute(f"SELECT {', '.join(names)} FROM {relation} ORDER BY ALL").fetchall()
    assert [tuple(map(str, row)) for row in found] == [
        tuple(map(str, row)) for row in ROWS.itertuples(index=False)
    ]


@pytest.mark.parametrize("kind", [table, query], ids=lambda kind: kind.__name__)
def test_a_database_hands_over_only_the_wanted_weeks(kind, tmp_path, connection):
    source = open_source(kind(tmp_path), connection)
    source.values("week")
    relation = source.relation(["store_id", "week"], ["2026-W34"])
    assert connection.execute(f"SELECT DISTINCT week FROM {relation}").fetchall() == [("2026-W34",)]


def test_a_database_hands_over_rows_without_a_week_when_wanted(tmp_path, connection):
    with sqlite3.connect(tmp_path / "s.db") as database:
        ROWS.assign(week=["2026-W34", None, "2026-W34", "2026-W30"]).to_sql("sales", database, index=False)
    source = open_source(f"sqlite:///{tmp_path / 's.db'}#table=sales", connection)
    assert source.values("week") == {"2026-W34": 2, None: 1, "2026-W30": 1}
    relation = source.relation(["week"], ["2026-W34", None])
    assert connection.execute(f"SELECT count(*) FROM {relation}").fetchone() == (3,)


def test_dates_are_told_as_dates(tmp_path, connection):
    times = pd.to_datetime(["2026-08-17 00:00", "2026-08-17 13:30", "2026-08-10 00:00", None])
    ROWS.assign(week=times).to_parquet(tmp_path / "sales.parquet")
    source = open_source(str(tmp_path / "sales.parquet"), connection)
    assert source.values("week") == {"2026-08-17": 2, "2026-08-10": 1, None: 1}


def damaged_parquet(folder: Path) -> Path:
    path = Path(parquet(folder))
    path.write_bytes(path.read_bytes()[:-20])
    return path


def damaged_gzip(folder: Path) -> Path:
    path = folder / "sales.csv.gz"
    path.write_bytes(gzip.compress(ROWS.to_csv(index=False).encode() * 500)[:-200])
    return path


def not_parquet(folder: Path) -> Path:
    path = folder / "sales.parquet"
    path.write_text("store_id,sku_id\n1,2\n")
    return path


def ragged_csv(folder: Path) -> Path:
    path = folder / "sales.csv"
    path.write_text(ROWS.to_csv(index=False) + "9,9,2026-W34,1,surplus,surplus\n")
    return path


def latin_csv(folder: Path) -> Path:
    path = folder / "sales.csv"
    path.write_bytes(ROWS.assign(sku_id="caf\xe9").to_csv(index=False).encode("latin-1"))
    return path


@pytest.mark.parametrize(
    "make",
    [damaged_parquet, damaged_gzip, not_parquet, ragged_csv, latin_csv],
    ids=lambda make: make.__name__,
)
def test_a_damaged_file_is_named(make, tmp_path, connection):
    path = make(tmp_path)

    def read():
        source = open_source(str(path), connection)
        source.values("week")

    with pytest.raises(DataError, match=r"sales\.\S+ cannot be read: ") as caught:
        read()
    assert caught.value.exit_code == 1
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.csv", None, "does not exist"),
        ("sales.xlsx", b"x", "of an unknown format"),
        ("sales.csv", b"", "is empty"),
        ("sales.csv", b"\n1,2\n", "has no header line"),
        ("sales.csv", b"a,b,a\n1,2,3\n", "without a name of their own: 'a'"),
        ("folder", {}, "holds no parquet or CSV file"),
        ("folder", {"notes.txt": b"x"}, r"holds no parquet or CSV file \(found notes.txt\)"),
        ("folder", {"a.csv": b"x\n1\n", "b.parquet": b"x"}, "holds 1 parquet and 1 CSV files"),
    ],
    ids=["absent", "unknown", "empty", "no header", "twice", "empty folder", "other files", "mixed"],
)
def test_what_is_no_table_is_refused(name, content, words, tmp_path, connection):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
        for file, data in content.items():
            (path / file).write_bytes(data)
    with pytest.raises(DataError, match=words):
        open_source(str(path), connection)


def test_a_database_that_is_not_there_is_refused_and_not_made(tmp_path, connection):
    with pytest.raises(DataError, match="does not exist"):
        open_source(f"sqlite:///{tmp_path / 'no.db'}#table=sales", connection)
    assert not (tmp_path / "no.db").exists()


def test_a_table_that_is_not_there_is_refused(tmp_path, connection):
    table(tmp_path)
    with pytest.raises(DataError, match=r"s\.db#table=turnover cannot be read: no such table"):
        open_source(f"sqlite:///{tmp_path / 's.db'}#table=turnover", connection)


@pytest.mark.parametrize("wanted", ["", "#", "#sales", "#table=", "#rows=sales"])
def test_an_url_must_say_what_to_read(wanted, tmp_path, connection):
    table(tmp_path)
    with pytest.raises(UsageError, match="does not say what to read") as caught:
        open_source(f"sqlite:///{tmp_path / 's.db'}{wanted}", connection)
    assert "#table=sales" in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "nothing"])
def test_no_message_holds_a_password(scheme, connection):
    with pytest.raises((DataError, UsageError)) as caught:
        open_source(f"{scheme}://me:secret@127.0.0.1:1/chain#table=sales", connection)
    assert "secret" not in str(caught.value)
