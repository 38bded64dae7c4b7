"""From sources to a snapshot: what is accepted, what is quarantined, what is rejected, and that nothing is
repaired."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.week_tables import WEEK, label, leave_docs_out, listing_table, sales_table

from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.settings import ContractLimits, RunConfig, Settings
from ew_pipeline.intake import checked_tables as keeping
from ew_pipeline.intake import read as ingesting
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.contract import Contract, ContractRejected
from ew_pipeline.intake.read import ingest
from ew_pipeline.intake.snapshot import Snapshot, read_manifest, read_table
from ew_pipeline.results import WeekRequest
from ew_pipeline.simulate import ChainSettings, simulate_chain

LENIENT = RunConfig(contract=ContractLimits(max_faulty_share=0.5))
GOOD = sales_table(
    *[(f"0{s}", f"00{k}", back, s + k) for s in range(3) for k in range(4) for back in range(3)]
)


@pytest.fixture
def with_docs():
    """For a test that looks at Data Docs."""


@pytest.fixture(autouse=True)
def _without_docs(request, monkeypatch):
    if "with_docs" not in request.fixturenames:
        leave_docs_out(monkeypatch)


def run(
    folder: Path, sales: pd.DataFrame | str, config: RunConfig = LENIENT, **sources
) -> tuple[Contract, Snapshot]:
    """Write frames as parquet and ingest them."""
    given = {}
    for name, source in {"sales": sales, **sources}.items():
        if isinstance(source, pd.DataFrame):
            path = folder / f"{name}.parquet"
            source.to_parquet(path, index=False)
            source = str(path)
        given[name] = source
    settings = Settings(home=folder / "home")
    return ingest(WeekRequest(WEEK, config=config, **given), settings, settings.runs / "run-1")


def rejected(
    folder: Path, sales: pd.DataFrame | str, config: RunConfig = LENIENT, **sources
) -> ContractRejected:
    with pytest.raises(ContractRejected) as caught:
        run(folder, sales, config, **sources)
    assert caught.value.exit_code == 1
    assert not list((folder / "home").glob("snapshots/*"))
    return caught.value


def quarantined(contract: Contract, table: str = "sales") -> pd.DataFrame:
    assert contract.quarantine is not None
    return pd.read_csv(contract.quarantine / f"{table}.csv", dtype=str, keep_default_na=False)


def kept(snapshot: Snapshot, table: str = "sales") -> pd.DataFrame:
    return read_table(snapshot.folder, table).to_pandas()


def week_of(snapshot: Snapshot, week: str) -> dict[tuple[str, str], int]:
    rows = kept(snapshot)
    rows = rows[rows["week"] == week]
    return dict(zip(zip(rows["store_id"], rows["sku_id"], strict=True), rows["units"], strict=True))


# --- every kind of source ---


def as_csv(folder: Path, rows: pd.DataFrame) -> str:
    rows.sample(frac=1, random_state=1).to_csv(folder / "s.csv.gz", index=False)
    return str(folder / "s.csv.gz")


def as_directory(folder: Path, rows: pd.DataFrame) -> str:
    for week, part in rows.groupby("week"):
        (folder / "s" / f"week={week}").mkdir(parents=True)
        part.drop(columns="week").to_parquet(folder / "s" / f"week={week}" / "part.parquet", index=False)
    return str(folder / "s")


def as_database(folder: Path, rows: pd.DataFrame) -> str:
    with sqlite3.connect(folder / "s.db") as database:
        rows[::-1].to_sql("sales", database, index=False)
    return f"sqlite:///{folder / 's.db'}#table=sales"


def as_dates(folder: Path, rows: pd.DataFrame) -> str:
    monday = {label(back): WEEK.shift(-back).start for back in range(12)}
    rows.assign(week=pd.to_datetime(rows["week"].map(monday))).to_parquet(folder / "s.parquet")
    return str(folder / "s.parquet")


def as_midnights(folder: Path, rows: pd.DataFrame) -> str:
    monday = {label(back): WEEK.shift(-back).start for back in range(12)}
    weeks = pd.to_datetime(rows["week"].map(monday)).dt.tz_localize("Europe/Berlin")
    rows.assign(week=weeks).to_parquet(folder / "s.parquet")
    return str(folder / "s.parquet")


def as_text_dates(folder: Path, rows: pd.DataFrame) -> str:
    monday = {label(back): WEEK.shift(-back).start.isoformat() for back in range(12)}
    rows.assign(week=rows["week"].map(monday), units=rows["units"].astype(float)).to_csv(
        folder / "s.csv", index=False
    )
    return str(folder / "s.csv")


def test_every_kind_of_source_gives_the_same_hash(tmp_path):
    flagged = GOOD.assign(promo=np.arange(len(GOOD)) % 5 == 0)
    _, snapshot = run(tmp_path, flagged)
    for kind in (as_csv, as_directory, as_database, as_dates, as_midnights, as_text_dates):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        _, other = run(folder, kind(folder, flagged))
        assert other.data_hash == snapshot.data_hash, kind.__name__
    assert set(kept(snapshot)["store_id"]) == {"00", "01", "02"}


@pytest.mark.usefixtures("with_docs")
def test_a_simulated_chain_passes_without_a_word(tmp_path, capfd):
    chain = simulate_chain(ChainSettings.small(median_units=8.0), 3)
    paths = chain.write(tmp_path / "in")
    week = WEEK.parse(str(chain.sales["week"].max()))
    settings = Settings(home=tmp_path / "home")
    request = WeekRequest(
        week, *(str(paths[name]) for name in ("sales", "listing", "costs", "stores", "skus")),
        config=RunConfig(segment_by="region"),
    )  # fmt: skip
    contract, snapshot = ingest(request, settings, settings.runs / "r")
    assert contract.faults == ()
    assert contract.quarantine is None
    assert contract.data_docs.is_file()
    assert read_manifest(snapshot.folder).segment_table == "stores"
    assert capfd.readouterr() == ("", "")
    assert not [path for path in (settings.runs / "r").iterdir() if path.name != "data_docs"]
    result = prepare(snapshot, week, request.config)
    assert {segment.name for segment in result.segments} == set(chain.stores["region"])
    assert result.coverage.pairs_zero_filled == 0


def test_only_the_window_is_kept_and_later_weeks_never(tmp_path):
    rows = sales_table(*[("A", "1", back, 1) for back in (-1, 0, 1, 2, 3, 4, 40)])
    _, snapshot = run(tmp_path, rows, RunConfig(history_weeks=2, inferred_weeks=3, probability="posterior"))
    assert read_manifest(snapshot.folder).weeks == tuple(label(back) for back in (3, 2, 1, 0))


@pytest.mark.parametrize(
    ("config", "furthest"),
    [
        ({}, 15),  # the calibration's weeks, and those that its first one infers zeros from
        ({"zero_rule": "explicit"}, 12),
        ({"max_calibrated_pairs": 1}, 3),
        ({"history": False}, 3),
    ],
    ids=["zeros may be inferred", "explicit zeros", "too many pairs", "no history"],
)
def test_the_weeks_of_a_calibration_are_kept_where_one_may_be_learnt(config, furthest, tmp_path):
    rows = sales_table(*[(store, "1", back, 1) for store in "AB" for back in range(20)])
    settings = {"history_weeks": 2, "inferred_weeks": 3, "calibration_weeks": 12, **config}
    _, snapshot = run(tmp_path, rows, RunConfig(**settings))
    assert read_manifest(snapshot.folder).weeks[0] == label(furthest)


def test_extra_columns_are_ignored_and_named(tmp_path):
    contract, _ = run(tmp_path, GOOD.assign(price=1.0, on_hand=2, till="x", weather="y"))
    assert contract.ignored_columns == {"sales": ("till", "weather")}


# --- faulty rows ---

FAULTY = {
    "units below zero": {"units": -1.0},
    "units with a fraction": {"units": 1.5},
    "units missing or not a number": {"units": np.nan},
    "units too large or infinite": {"units": np.inf},
    "no store id": {"store_id": None},
    "no SKU id": {"sku_id": None},
    "no week, or one that cannot be read": {"week": "34/2026"},
}


def spoilt(rows: pd.DataFrame, position: int, cells: dict[str, object]) -> pd.DataFrame:
    changed = rows.astype({"units": float}).reset_index(drop=True)
    for column, value in cells.items():
        changed.loc[position, column] = value
    return changed


def test_every_kind_of_faulty_row_is_quarantined_with_its_reason_and_nothing_is_repaired(tmp_path):
    rows = GOOD
    now = np.flatnonzero(rows["week"] == label())
    for position, cells in zip(now, FAULTY.values(), strict=False):
        rows = spoilt(rows, position, cells)
    contract, snapshot = run(tmp_path, rows, RunConfig(contract=ContractLimits(max_faulty_share=0.9)))
    assert {fault.reason: (fault.rows, fault.rejects) for fault in contract.faults} == dict.fromkeys(
        FAULTY, (1, False)
    )
    assert contract.rows_quarantined == len(FAULTY)
    found = quarantined(contract)
    assert sorted(found["reason"]) == sorted(FAULTY)
    assert {"-1", "1.5", "inf"} <= set(found["units"])
    assert "34/2026" in set(found["week"])
    good = GOOD.iloc[now[len(FAULTY) :]]
    assert week_of(snapshot, label()) == dict(
        zip(zip(good["store_id"], good["sku_id"], strict=True), good["units"], strict=True)
    )
    # Keys that are whole are known to be unknown, and never filled with zeros.
    assert len(kept(snapshot, "withheld")) == 4


def test_text_in_a_number_is_kept_as_it_was_written(tmp_path):
    rows = GOOD.astype({"units": object})
    rows.loc[rows.index[0], "units"] = "three"
    rows.to_csv(tmp_path / "s.csv", index=False)
    contract, _ = run(tmp_path, str(tmp_path / "s.csv"))
    assert quarantined(contract)[["store_id", "sku_id", "units"]].to_numpy().tolist() == [
        ["00", "000", "three"]
    ]


def test_a_store_the_listing_does_not_name_is_a_fault(tmp_path):
    listing = listing_table(
        *{(s, k) for s, k in zip(GOOD["store_id"], GOOD["sku_id"], strict=True) if s != "02"}
    )
    contract, snapshot = run(tmp_path, GOOD, listing=listing)
    assert {fault.reason: fault.rows for fault in contract.faults} == {"store not in the listing": 4}
    assert {store for store, _ in week_of(snapshot, label())} == {"00", "01"}


def test_a_store_that_closed_is_no_fault_of_earlier_weeks(tmp_path):
    rows = GOOD[(GOOD["store_id"] != "02") | (GOOD["week"] != label())]
    open_stores = rows[rows["store_id"] != "02"]
    pairs = set(zip(open_stores["store_id"], open_stores["sku_id"], strict=True))
    contract, snapshot = run(tmp_path, rows, listing=listing_table(*pairs))
    assert contract.faults == ()
    result = prepare(snapshot, WEEK, LENIENT)
    assert result.coverage.stores_missing == ()
    assert result.segments[0].sales.store_ids.tolist() == ["00", "01"]


@pytest.mark.usefixtures("with_docs")
def test_above_the_share_the_batch_is_rejected_and_every_key_is_written(tmp_path):
    rows = spoilt(spoilt(GOOD, 0, {"units": -1.0}), 3, {"units": -2.0})
    assert rows.loc[[0, 3], "week"].tolist() == [label(), label()]
    error = rejected(tmp_path, rows, RunConfig())
    assert "2 rows of sales: units below zero (00/000 in 2026-W34, 00/001 in 2026-W34)" in str(error)
    assert f"ew run --week {WEEK} --sales {tmp_path / 'sales.parquet'}" in str(error)
    assert str(error.contract.quarantine) in str(error)
    assert quarantined(error.contract)[["store_id", "sku_id"]].to_numpy().tolist() == [
        ["00", "000"],
        ["00", "001"],
    ]
    assert error.contract.data_docs.is_file()


def test_the_share_is_that_of_the_week_and_not_of_the_window(tmp_path):
    rows = spoilt(GOOD, 0, {"units": -1.0})  # 1 of 12 in the week, 1 of 36 in the window
    rejected(tmp_path, rows, RunConfig(contract=ContractLimits(max_faulty_share=1 / 20)))


def test_an_earlier_week_only_loses_its_faulty_rows(tmp_path):
    rows = GOOD.astype({"units": float})
    rows.loc[rows["week"] == label(1), "units"] = -1.0
    rows = pd.concat([rows, rows[rows["week"] == label(2)].iloc[:1]])
    contract, snapshot = run(tmp_path, rows, RunConfig())
    assert {fault.reason: fault.rows for fault in contract.faults} == {
        "units below zero, in earlier weeks": 12,
        "store, SKU and week more than once, in earlier weeks": 2,
    }
    assert len(quarantined(contract)) == 14
    assert kept(snapshot)["week"].value_counts().to_dict() == {label(): 12, label(2): 11}


def test_many_faults_are_all_written_and_the_first_few_named(tmp_path):
    rows = sales_table(*[("S", f"{k:04d}", 0, -1) for k in range(1000)], *[("S", "x", 0, 1)])
    error = rejected(tmp_path, rows)
    assert "1,000 rows of sales: units below zero" in str(error)
    assert "… +995" in str(error)
    assert set(quarantined(error.contract)["sku_id"]) == {f"{k:04d}" for k in range(1000)}


# --- broken batches ---


def test_duplicate_keys_reject_and_every_copy_is_written(tmp_path):
    twice = pd.concat([GOOD, GOOD[GOOD["week"] == label()].iloc[:2]])
    error = rejected(tmp_path, twice, RunConfig(contract=ContractLimits(max_faulty_share=1.0)))
    assert "4 rows of sales: store, SKU and week more than once" in str(error)
    assert quarantined(error.contract)["sku_id"].tolist() == ["000", "000", "001", "001"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="units"), "has no column units. Its columns: store_id, sku_id, week"),
        (lambda f: f.rename(columns={"week": "Week"}), "has no column week"),
        (lambda f: f[:0], "has no rows"),
        (lambda f: f[f["week"] != label()], "has no row of 2026-W34; its weeks run from 2026-W32 to"),
        (lambda f: f.assign(week="last"), "no value of week in .* can be read, for example 'last'"),
        (lambda f: f.assign(units="3"), "column units of .* is VARCHAR; it must be numbers"),
        (lambda f: f.assign(units=True), "column units of .* is BOOLEAN"),
        (lambda f: f.assign(store_id=1.5), "store_id of .* is DOUBLE; it must be text, or whole numbers"),
        (lambda f: f.assign(week=34), "column week of .* is BIGINT; it must be ISO weeks"),
    ],
    ids=["column", "case", "empty", "no week", "weeks", "text", "boolean", "float ids", "numeric week"],
)
def test_a_broken_batch_is_rejected_in_words(change, words, tmp_path):
    error = rejected(tmp_path, change(GOOD))
    assert "the sales of 2026-W34 are rejected" in str(error)
    assert pd.Series([str(error)]).str.contains(words).all(), str(error)
    assert "run again: ew run --week 2026-W34" in str(error)
    assert error.contract.faults[0].rejects


def test_an_unreadable_or_absent_file_is_rejected(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense PAR1")
    assert "cannot be read" in str(rejected(tmp_path, str(tmp_path / "bad.parquet")))
    assert "does not exist" in str(rejected(tmp_path, str(tmp_path / "no.parquet")))
    assert "the listing of 2026-W34" in str(rejected(tmp_path, GOOD, listing=str(tmp_path / "bad.parquet")))


def test_no_rejection_shows_a_password(tmp_path):
    error = rejected(tmp_path, GOOD, listing="postgresql+psycopg://me:secret@127.0.0.1:1/x#table=listing")
    assert "secret" not in str(error)


# --- the other tables ---


def test_listing_faults_are_quarantined_or_reject(tmp_path):
    pairs = sorted(set(zip(GOOD["store_id"], GOOD["sku_id"], strict=True)))
    good = listing_table(*pairs)
    odd = pd.concat([good, listing_table(("00", "x", "soon"), ("00", "y", label(1), label(3)), (None, "z"))])
    contract, snapshot = run(tmp_path, GOOD, listing=odd)
    found = quarantined(contract, "listing")
    assert sorted(found["reason"]) == [
        "first_week cannot be read",
        "last_week before first_week",
        "no store id",
    ]
    assert sorted(found["first_week"]) == ["", label(1), "soon"]
    assert len(kept(snapshot, "listing")) == 12
    (tmp_path / "2").mkdir()
    error = rejected(tmp_path / "2", GOOD, listing=pd.concat([good, good[:1]]))
    assert "2 rows of listing: store and SKU more than once (00/000, 00/000)" in str(error)


def test_a_listing_with_dates_open_ends_and_rows_out_of_reach(tmp_path):
    listing = pd.DataFrame(
        {
            "store_id": "00",
            "sku_id": ["000", "001", "002", "003"],
            "first_week": [pd.Timestamp("2020-01-06"), pd.NaT, pd.Timestamp("2030-01-07"), pd.NaT],
            "last_week": [pd.NaT, pd.Timestamp(WEEK.start), pd.NaT, pd.Timestamp("2020-01-06")],
        }
    )
    rows = GOOD[GOOD["store_id"] == "00"]
    _, snapshot = run(tmp_path, rows, listing=listing)
    found = kept(snapshot, "listing")
    assert found["sku_id"].tolist() == ["000", "001"]
    assert found["first_week"].astype(object).where(found["first_week"].notna(), None).tolist() == [
        "2020-W02",
        None,
    ]


def costs(
    *rows: tuple[object, ...], columns: str = "store_id sku_id cost_false_alarm cost_missed"
) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=columns.split())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (costs(("00", "000", 1.0, -1.0)), "cost of a missed anomaly below zero or infinite (00/000)"),
        (costs((None, None, np.nan, 1.0)), "cost of a false alarm missing or not a number"),
        (
            costs((None, "1", 1.0, 1.0), (None, "1", 1.0, 2.0)),
            "2 rows of costs: store and SKU more than once",
        ),
        (
            costs((None, None, 1.0, 1.0), (None, None, 1.0, 2.0)),
            "2 rows of costs: store and SKU more than once",
        ),
        (costs(("00", 1.0), columns="store_id cost_missed"), "has no column cost_false_alarm"),
        (
            costs((1.0, 1.0, 1.0), columns="cost_missed cost_false_alarm cost_flagged_healthy"),
            "in both forms",
        ),
    ],
    ids=["negative", "missing", "twice", "two for the chain", "no column", "both forms"],
)
def test_a_wrong_cost_rejects(table, words, tmp_path):
    error = rejected(tmp_path, GOOD, RunConfig(contract=ContractLimits(max_faulty_share=1.0)), costs=table)
    assert words in str(error)


def test_four_costs_are_reduced_to_two(tmp_path):
    four = costs(
        ("000", 3.0, 1.0, 9.0, 4.0),
        columns="sku_id cost_flagged_healthy cost_ignored_healthy "
        "cost_ignored_anomalous cost_flagged_anomalous",
    )
    _, snapshot = run(tmp_path, GOOD, costs=four)
    (tmp_path / "2").mkdir()
    _, two = run(tmp_path / "2", GOOD, costs=costs((None, "000", 2.0, 5.0)))
    assert kept(snapshot, "costs")[["cost_false_alarm", "cost_missed"]].to_numpy().tolist() == [[2.0, 5.0]]
    assert two.data_hash == snapshot.data_hash


@pytest.mark.parametrize("place", ["sales", "listing", "stores", "skus"])
def test_a_segment_column_is_found_in_any_table(place, tmp_path):
    pairs = sorted(set(zip(GOOD["store_id"], GOOD["sku_id"], strict=True)))
    sources = {
        "sales": GOOD,
        "listing": listing_table(*pairs),
        "stores": pd.DataFrame({"store_id": ["00", "01", "02"]}),
        "skus": pd.DataFrame({"sku_id": ["000", "001", "002", "003"]}),
    }
    frame = sources[place]
    key = "sku_id" if place == "skus" else "store_id"
    sources[place] = frame.assign(kind=np.where(frame[key].str.endswith("0"), "x", "y"))
    config = RunConfig(segment_by="kind", min_pair_entries=1)
    _, snapshot = run(tmp_path, sources.pop("sales"), config, **sources)
    result = prepare(snapshot, WEEK, config)
    assert [segment.name for segment in result.segments] == ["x", "y"]
    sizes = [segment.sales.n_observed for segment in result.segments]
    assert sizes == ([3, 9] if place == "skus" else [4, 8])


@pytest.mark.parametrize("place", ["sales", "stores"])
def test_a_segment_that_is_blank_everywhere_is_unknown(place, tmp_path):
    stores = pd.DataFrame({"store_id": ["00", "01", "02"]})
    sources = {"sales": GOOD, "stores": stores} | {
        place: (GOOD if place == "sales" else stores).assign(kind="")
    }
    config = RunConfig(segment_by="kind", min_pair_entries=1)
    _, snapshot = run(tmp_path, sources.pop("sales"), config, **sources)
    assert [segment.name for segment in prepare(snapshot, WEEK, config).segments] == ["unknown"]


def test_an_unknown_segment_column_names_those_that_are_there(tmp_path):
    stores = pd.DataFrame({"store_id": ["00"], "region": ["north"]})
    with pytest.raises(
        UsageError, match=r"no column area to split the chain by. Columns: till \(sales\); region"
    ):
        run(tmp_path, GOOD.assign(till=1), RunConfig(segment_by="area"), stores=stores)


def test_a_store_in_the_table_twice_rejects(tmp_path):
    stores = pd.DataFrame({"store_id": ["00", "00"], "region": ["north", "south"]})
    error = rejected(tmp_path, GOOD, RunConfig(segment_by="region"), stores=stores)
    assert "2 rows of stores: the same id more than once" in str(error)


def test_a_home_that_cannot_be_written_to_ends_in_words(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(EwError, match="cannot write to") as caught:
        run(tmp_path, GOOD)
    assert caught.value.exit_code == 3


# --- a week without fault is read once ---


class Counted:
    """A DuckDB connection that keeps what is asked of it."""

    def __init__(self, connection):
        self.connection, self.statements = connection, []

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *values):
        self.statements.append(statement)
        return self.connection.execute(statement, *values)


@pytest.fixture
def connections(monkeypatch):
    made, scratch = [], ingesting.scratch

    @contextmanager
    def counted(folder, threads):
        with scratch(folder, threads) as connection:
            made.append(Counted(connection))
            yield made[-1]

    monkeypatch.setattr(ingesting, "scratch", counted)
    return made


def times_sorted(connection):
    return sum("FROM sales WHERE week" in text and "ORDER BY" in text for text in connection.statements)


def test_the_rows_of_a_week_without_fault_are_sorted_once(tmp_path, connections):
    now = GOOD[GOOD["week"] == str(WEEK)]
    run(tmp_path, as_csv(tmp_path, now))
    assert times_sorted(connections[0]) == 2  # with those whose week cannot be read: there are none
    run(tmp_path, pd.concat([now, sales_table(("00", "009", 0, -1))]))
    assert times_sorted(connections[1]) == 3  # without the faulty row, once more


def test_plain_sales_are_never_in_the_database(tmp_path, connections):
    run(tmp_path, GOOD, listing=listing_table(*{(s, k) for s, k in GOOD[["store_id", "sku_id"]].to_numpy()}))
    made = [text for text in connections[0].statements if text.startswith("CREATE TABLE")]
    assert any(text.startswith("CREATE TABLE listing ") for text in made)
    assert not any("sales" in text for text in made)


@pytest.mark.usefixtures("with_docs")
def test_in_data_docs_a_week_that_was_not_plain_stands_once(tmp_path):
    now = GOOD[GOOD["week"] == str(WEEK)]
    listing = listing_table(*{(s, k) for s, k in now[["store_id", "sku_id"]].to_numpy()})
    contract, _ = run(tmp_path, pd.concat([now, sales_table(("09", "001", 0, 1))]), listing=listing)
    assert [fault.reason for fault in contract.faults] == ["store not in the listing"]
    pages = list(contract.data_docs.parent.rglob("validations/sales/**/*.html"))
    assert len(pages) == 1


def test_what_was_checked_is_kept_as_what_is_read_again(tmp_path, monkeypatch):
    sales = GOOD.assign(promo=[None, True, False] * (len(GOOD) // 3))
    _, first = run(tmp_path, sales.sample(frac=1, random_state=0))
    add_tables = keeping.add_tables
    monkeypatch.setattr(keeping, "add_tables", lambda *given: add_tables(*given[:-1], keeping.Clean()))
    _, second = run(tmp_path, sales)
    assert first.data_hash == second.data_hash
