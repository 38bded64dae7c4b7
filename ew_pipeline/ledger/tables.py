"""The ledger's tables. Facts are only ever added: no row below ``chain_head`` is changed or removed.

Both databases hold the same values: moments are UTC in ISO text of one width (they sort in time), nested
values are canonical JSON as text, numbers are doubles. An absent number is NULL, never NaN. The migrations in
``migrations/`` build these tables; a test holds the two together.

``append-only`` below means: a later row speaks for the same thing, and the newest is the valid one.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null)


def _whole(name: str, *, null: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=null)


def _number(name: str, *, null: bool = False) -> Column[float]:
    return Column(name, Double, nullable=null)


def _yes_no(name: str) -> Column[bool]:
    return Column(name, Boolean(create_constraint=False), nullable=False)


def _id() -> Column[int]:
    """Numbered by the ledger inside its one-writer transaction: no gaps."""
    return Column("id", Integer, primary_key=True, autoincrement=False)


def _publication(name: str = "publication_id", *, null: bool = False) -> Column[int]:
    return Column(name, Integer, ForeignKey("publications.id"), nullable=null)


def _theta(suffix: str = "", *, null: bool = False) -> list[Column[float]]:
    """alpha and p_A, each with the ends of its 90% interval; an open end is NULL."""
    return [
        _number(f"alpha{suffix}", null=null),
        _number(f"alpha{suffix}_low", null=True),
        _number(f"alpha{suffix}_high", null=True),
        _number(f"anomaly_rate{suffix}", null=null),
        _number(f"anomaly_rate{suffix}_low", null=True),
        _number(f"anomaly_rate{suffix}_high", null=True),
    ]


# One row per attempt and revision: a held run that is published later gets a second revision.
runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    _text("week"),
    _text("status"),  # computed, held, published, unchanged, rejected, failed, shadow
    _text("recorded_at"),
    _text("recorded_by"),
    _text("started_at"),
    _text("finished_at"),
    _yes_no("shadow"),
    _text("data_hash", null=True),  # NULL: the run ended before its inputs were kept
    _text("config_hash"),
    _text("code_version"),
    _whole("seed"),
    _text("flow_run_id", null=True),
    _text("mlflow_run_id", null=True),
    _whole("pairs_scored", null=True),
    _whole("pairs_flagged", null=True),
    _number("expected_saving", null=True),
    _number("expected_cost", null=True),
    _number("expected_cost_ignoring", null=True),
    _text("config"),  # RunConfig
    _text("contract", null=True),
    _text("coverage", null=True),
    _text("gate", null=True),
    _text("pricing", null=True),  # which probability was priced, and why; NULL: the detector's own
    _text("warnings"),
    _text("timings"),  # seconds by step
    _text("environment"),
    _text("folder"),
    _text("error", null=True),
    Index(None, "week", "recorded_at"),
)

# One row per fitted matrix of a run, and "pooled" for all of them together (theta only).
segments = Table(
    "segments",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("segment", Text, primary_key=True),
    _text("week"),
    *_theta(),
    _yes_no("at_bound"),
    _yes_no("identified"),
    _text("reason"),
    _whole("stores"),
    _whole("skus"),
    _whole("pairs"),
    _whole("pairs_flagged"),
    _number("units"),  # sold, over the scored pairs: the level of demand
    _number("expected_units"),
    _number("expected_saving"),
    _number("expected_cost_ignoring"),
    _whole("rank", null=True),
    _text("noise", null=True),
    _text("anomaly", null=True),
    _number("dispersion_size", null=True),  # NULL: infinite, that is Poisson
    _text("mode", null=True),
    _text("mode_reason", null=True),
    Column("converged", Boolean(create_constraint=False)),
    _number("null_gain", null=True),
    _text("rank_curve", null=True),  # [[rank, leave-one-out log predictive per pair], …]
    _text("held_out_curve", null=True),
    _text("rank_weights", null=True),
    _text("singular_values", null=True),
    _text("warnings", null=True),
    _number("seconds", null=True),
    _text("model", null=True),
    _text("calibration", null=True),  # version of the record that the priced probability comes from
    *_theta("_over_weeks", null=True),  # this week's, with the weeks published before as a prior
    _whole("weeks_pooled", null=True),  # how many those were
    Index(None, "week", "segment"),
)

# What was live, from when: the newest version of a week is live. `source_id` is the publication whose flags
# and files it shows: itself, or for a rollback the one that is live again.
publications = Table(
    "publications",
    metadata,
    _id(),
    _text("week"),
    _whole("version"),
    _text("kind"),  # publish, rollback
    _text("run_id"),
    _publication("supersedes", null=True),
    _publication("source_id"),
    _text("published_at"),
    _text("published_by"),
    _text("override_who", null=True),
    _text("override_why", null=True),
    _text("reason", null=True),  # of a rollback
    _text("data_hash"),
    _text("config_hash"),
    _text("code_version"),
    _whole("pairs_scored"),
    _whole("flags_count"),
    _text("flags_hash"),
    _number("expected_saving"),
    _text("report"),
    _text("report_hash"),
    _text("scores", null=True),
    _text("scores_hash", null=True),
    _text("files"),  # {path in the run's folder: sha256}
    UniqueConstraint("week", "version"),
    Index(None, "published_at"),
)

# What is a flag's own. What flags share (week, theta, model, runs, hashes) is in publications, segments and
# runs, once; the view `flags` (``flags``) has each with its whole story. `row_hash` = SHA-256(row_hash of
# the row before + this row with all that the view has), and the last one is the publication's `flags_hash`.
# Flags are asked for by publication, and within it by store and SKU: an index of pairs over all weeks would
# add a third to the time in which a large week is written.
flag_rows = Table(
    "flag_rows",
    metadata,
    Column("publication_id", Integer, ForeignKey("publications.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),  # 0: the best one to check
    _text("store_id"),
    _text("sku_id"),
    _text("segment"),
    _whole("units"),
    _number("expected_units"),
    _number("anomaly_probability"),
    _number("cost_false_alarm"),
    _number("cost_missed"),
    _number("threshold"),
    _number("expected_saving"),
    _whole("store_rank"),
    _text("reasons"),
    _number("level", null=True),  # NULL: no history
    _text("row_hash"),
    UniqueConstraint("publication_id", "store_id", "sku_id"),
)

# Pairs that were not flagged and are checked all the same, drawn at random: no flags, so not among them.
random_checks = Table(
    "random_checks",
    metadata,
    _id(),
    _publication(),
    _text("week"),
    _text("store_id"),
    _text("sku_id"),
    _text("segment"),
    _whole("units"),
    _number("expected_units"),
    _number("anomaly_probability"),
    _number("cost_false_alarm"),
    _number("cost_missed"),
    _number("inclusion_probability"),
    UniqueConstraint("publication_id", "store_id", "sku_id"),
    Index(None, "week", "store_id", "sku_id"),
)

# Which configuration is the champion or a challenger. Append-only.
config_roles = Table(
    "config_roles",
    metadata,
    _id(),
    _text("role"),  # champion, challenger
    _text("run_id"),
    _text("config_hash"),
    _text("config"),
    _text("assigned_at"),
    _text("assigned_by"),
    _text("why"),
    Index(None, "role", "id"),
)

# What people found on the shelf. Append-only: the newest row of a pair and week is valid.
checks = Table(
    "checks",
    metadata,
    _id(),
    _text("store_id"),
    _text("sku_id"),
    _text("week"),
    _text("outcome"),  # confirmed, healthy, not_checked
    _text("source"),  # flag, random
    _publication(null=True),
    _text("checked_at", null=True),
    _text("checked_by", null=True),
    _text("recorded_at"),
    _text("recorded_by"),
    _text("note", null=True),
    # What the publication said of the pair, kept here since scores are pruned after some weeks.
    _number("anomaly_probability", null=True),
    _number("cost_false_alarm", null=True),
    _number("cost_missed", null=True),
    _number("inclusion_probability", null=True),  # of being sent to be checked: 1 for a flag
    Index(None, "week", "store_id", "sku_id"),
)

# How the published decisions of a week turned out, once its labels are mature or checks came in.
evaluations = Table(
    "evaluations",
    metadata,
    _id(),
    _text("week"),
    _publication(),
    _text("basis"),  # labels, checks
    _text("label_rule", null=True),
    _text("label_version", null=True),
    _text("data_hash", null=True),  # of the later weeks the labels need
    _text("metrics"),
    _text("evaluated_at"),
    _text("evaluated_by"),
    Index(None, "week"),
)

# One value of one control chart. Append-only: a superseded week is charted again.
drift_points = Table(
    "drift_points",
    metadata,
    _id(),
    _text("week"),
    _text("segment"),
    _text("series"),  # alpha, anomaly_rate, rank, dispersion, flagged_share, …
    _publication(),
    _number("value", null=True),
    _number("low", null=True),
    _number("high", null=True),
    _number("statistic", null=True),  # of the chart, after this week
    _number("control_limit", null=True),
    _text("verdict"),
    _text("detail", null=True),
    _text("computed_at"),
    Index(None, "series", "segment", "week"),
)

alerts = Table(
    "alerts",
    metadata,
    _id(),
    _text("week"),
    _text("segment"),
    _text("kind"),  # anomaly_drift, composition_change, overdispersion_change, …
    _text("severity"),
    _text("words"),
    _publication(null=True),
    _text("detail", null=True),
    _text("raised_at"),
    Index(None, "week"),
)

acknowledgements = Table(
    "acknowledgements",
    metadata,
    _id(),
    Column("alert_id", Integer, ForeignKey("alerts.id"), nullable=False),
    _text("acknowledged_by"),
    _text("acknowledged_at"),
    _text("note"),
    Index(None, "alert_id"),
)

# Files of a run that were removed on purpose; they may be absent, all others may not.
removals = Table(
    "removals",
    metadata,
    _id(),
    _text("run_id"),
    _text("week"),
    _text("files"),  # {path in the run's folder: sha256}
    _whole("bytes"),
    _text("why"),
    _text("removed_at"),
    _text("removed_by"),
    Index(None, "run_id"),
)

# One link per row of the tables above (flags hang on their publication), in the order they were written.
chain = Table(
    "chain",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    _text("table_name"),
    _text("record_key"),
    _text("record_hash"),
    _text("previous_hash"),
    _text("hash"),
    UniqueConstraint("table_name", "record_key"),
)

# The one row that is updated: where the chain ends. Writers queue on it.
chain_head = Table(
    "chain_head",
    metadata,
    _id(),
    _text("ledger_id"),
    _whole("seq"),
    _text("hash"),
)

# Tables whose rows are links of the chain, in an order in which foreign keys can be filled.
CHAINED = (
    runs,
    segments,
    publications,
    random_checks,
    config_roles,
    checks,
    evaluations,
    drift_points,
    alerts,
    acknowledgements,
    removals,
)
# Tables that later stages fill through `Ledger.append`.
APPENDABLE = {
    table.name: table for table in (checks, evaluations, drift_points, alerts, acknowledgements, removals)
}
