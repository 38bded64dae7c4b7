"""The ledger: runs, segments, publications, flags, their chain, and the tables monitoring fills.

What the flags of a publication share (week, theta, model, runs, hashes) stands in publications, segments and
runs; the view `flags` has each flag with all of it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"  # what four versions before it led to
down_revision = None
branch_labels = None
depends_on = None

# Outer joins: a flag is to be seen, and counted, also where a row is gone that it shares columns with.
FLAGS = """
CREATE VIEW flags AS
SELECT f.publication_id, f.position, f.store_id, f.sku_id, p.week, f.segment, f.units, f.expected_units,
 f.anomaly_probability, f.cost_false_alarm, f.cost_missed, f.threshold, f.expected_saving, f.store_rank,
 f.reasons, f.level, s.alpha, s.alpha_low, s.alpha_high, s.anomaly_rate, s.anomaly_rate_low,
 s.anomaly_rate_high, s.rank, s.noise, s.anomaly, p.run_id, r.flow_run_id, r.mlflow_run_id, p.data_hash,
 p.config_hash, p.code_version, f.row_hash
FROM flag_rows AS f
LEFT JOIN publications AS p ON p.id = f.publication_id
LEFT JOIN segments AS s ON s.run_id = p.run_id AND s.segment = f.segment
LEFT JOIN runs AS r ON r.run_id = p.run_id
 AND r.revision = (SELECT max(n.revision) FROM runs AS n WHERE n.run_id = p.run_id)
"""


def upgrade() -> None:
    op.create_table(
        "chain",
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("record_key", sa.Text(), nullable=False),
        sa.Column("record_hash", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_chain")),
        sa.UniqueConstraint("table_name", "record_key", name=op.f("uq_chain_table_name_record_key")),
    )
    op.create_table(
        "chain_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chain_head")),
    )
    op.create_table(
        "config_roles",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("assigned_at", sa.Text(), nullable=False),
        sa.Column("assigned_by", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_config_roles")),
    )
    op.create_index(op.f("ix_config_roles_role_id"), "config_roles", ["role", "id"], unique=False)
    op.create_table(
        "publications",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("supersedes", sa.Integer(), nullable=True),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("published_at", sa.Text(), nullable=False),
        sa.Column("published_by", sa.Text(), nullable=False),
        sa.Column("override_who", sa.Text(), nullable=True),
        sa.Column("override_why", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("data_hash", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("pairs_scored", sa.BigInteger(), nullable=False),
        sa.Column("flags_count", sa.BigInteger(), nullable=False),
        sa.Column("flags_hash", sa.Text(), nullable=False),
        sa.Column("expected_saving", sa.Double(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("report_hash", sa.Text(), nullable=False),
        sa.Column("scores", sa.Text(), nullable=True),
        sa.Column("scores_hash", sa.Text(), nullable=True),
        sa.Column("files", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["publications.id"], name=op.f("fk_publications_source_id")),
        sa.ForeignKeyConstraint(["supersedes"], ["publications.id"], name=op.f("fk_publications_supersedes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publications")),
        sa.UniqueConstraint("week", "version", name=op.f("uq_publications_week_version")),
    )
    op.create_index(op.f("ix_publications_published_at"), "publications", ["published_at"], unique=False)
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.Text(), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.Text(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("data_hash", sa.Text(), nullable=True),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("flow_run_id", sa.Text(), nullable=True),
        sa.Column("mlflow_run_id", sa.Text(), nullable=True),
        sa.Column("pairs_scored", sa.BigInteger(), nullable=True),
        sa.Column("pairs_flagged", sa.BigInteger(), nullable=True),
        sa.Column("expected_saving", sa.Double(), nullable=True),
        sa.Column("expected_cost", sa.Double(), nullable=True),
        sa.Column("expected_cost_ignoring", sa.Double(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("contract", sa.Text(), nullable=True),
        sa.Column("coverage", sa.Text(), nullable=True),
        sa.Column("gate", sa.Text(), nullable=True),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("timings", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("pricing", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "revision", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_week_recorded_at"), "runs", ["week", "recorded_at"], unique=False)
    op.create_table(
        "segments",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("alpha_low", sa.Double(), nullable=True),
        sa.Column("alpha_high", sa.Double(), nullable=True),
        sa.Column("anomaly_rate", sa.Double(), nullable=False),
        sa.Column("anomaly_rate_low", sa.Double(), nullable=True),
        sa.Column("anomaly_rate_high", sa.Double(), nullable=True),
        sa.Column("at_bound", sa.Boolean(), nullable=False),
        sa.Column("identified", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("stores", sa.BigInteger(), nullable=False),
        sa.Column("skus", sa.BigInteger(), nullable=False),
        sa.Column("pairs", sa.BigInteger(), nullable=False),
        sa.Column("pairs_flagged", sa.BigInteger(), nullable=False),
        sa.Column("units", sa.Double(), nullable=False),
        sa.Column("expected_units", sa.Double(), nullable=False),
        sa.Column("expected_saving", sa.Double(), nullable=False),
        sa.Column("expected_cost_ignoring", sa.Double(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("noise", sa.Text(), nullable=True),
        sa.Column("anomaly", sa.Text(), nullable=True),
        sa.Column("dispersion_size", sa.Double(), nullable=True),
        sa.Column("mode", sa.Text(), nullable=True),
        sa.Column("mode_reason", sa.Text(), nullable=True),
        sa.Column("converged", sa.Boolean(), nullable=True),
        sa.Column("null_gain", sa.Double(), nullable=True),
        sa.Column("rank_curve", sa.Text(), nullable=True),
        sa.Column("held_out_curve", sa.Text(), nullable=True),
        sa.Column("rank_weights", sa.Text(), nullable=True),
        sa.Column("singular_values", sa.Text(), nullable=True),
        sa.Column("warnings", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("calibration", sa.Text(), nullable=True),
        sa.Column("alpha_over_weeks", sa.Double(), nullable=True),
        sa.Column("alpha_over_weeks_low", sa.Double(), nullable=True),
        sa.Column("alpha_over_weeks_high", sa.Double(), nullable=True),
        sa.Column("anomaly_rate_over_weeks", sa.Double(), nullable=True),
        sa.Column("anomaly_rate_over_weeks_low", sa.Double(), nullable=True),
        sa.Column("anomaly_rate_over_weeks_high", sa.Double(), nullable=True),
        sa.Column("weeks_pooled", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "segment", name=op.f("pk_segments")),
    )
    op.create_index(op.f("ix_segments_week_segment"), "segments", ["week", "segment"], unique=False)
    op.create_table(
        "alerts",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("raised_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_alerts_publication_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index(op.f("ix_alerts_week"), "alerts", ["week"], unique=False)
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("sku_id", sa.Text(), nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=True),
        sa.Column("checked_at", sa.Text(), nullable=True),
        sa.Column("checked_by", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.Text(), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("anomaly_probability", sa.Double(), nullable=True),
        sa.Column("cost_false_alarm", sa.Double(), nullable=True),
        sa.Column("cost_missed", sa.Double(), nullable=True),
        sa.Column("inclusion_probability", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_checks_publication_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checks")),
    )
    op.create_index(
        op.f("ix_checks_week_store_id_sku_id"), "checks", ["week", "store_id", "sku_id"], unique=False
    )
    op.create_table(
        "drift_points",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("statistic", sa.Double(), nullable=True),
        sa.Column("control_limit", sa.Double(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("computed_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_drift_points_publication_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drift_points")),
    )
    op.create_index(
        op.f("ix_drift_points_series_segment_week"),
        "drift_points",
        ["series", "segment", "week"],
        unique=False,
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("label_rule", sa.Text(), nullable=True),
        sa.Column("label_version", sa.Text(), nullable=True),
        sa.Column("data_hash", sa.Text(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("evaluated_at", sa.Text(), nullable=False),
        sa.Column("evaluated_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_evaluations_publication_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
    )
    op.create_index(op.f("ix_evaluations_week"), "evaluations", ["week"], unique=False)
    op.create_table(
        "flag_rows",
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("sku_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("expected_units", sa.Double(), nullable=False),
        sa.Column("anomaly_probability", sa.Double(), nullable=False),
        sa.Column("cost_false_alarm", sa.Double(), nullable=False),
        sa.Column("cost_missed", sa.Double(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("expected_saving", sa.Double(), nullable=False),
        sa.Column("store_rank", sa.BigInteger(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("level", sa.Double(), nullable=True),
        sa.Column("row_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_flag_rows_publication_id")
        ),
        sa.PrimaryKeyConstraint("publication_id", "position", name=op.f("pk_flag_rows")),
        sa.UniqueConstraint(
            "publication_id", "store_id", "sku_id", name=op.f("uq_flag_rows_publication_id_store_id_sku_id")
        ),
    )
    op.create_table(
        "random_checks",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("store_id", sa.Text(), nullable=False),
        sa.Column("sku_id", sa.Text(), nullable=False),
        sa.Column("segment", sa.Text(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("expected_units", sa.Double(), nullable=False),
        sa.Column("anomaly_probability", sa.Double(), nullable=False),
        sa.Column("cost_false_alarm", sa.Double(), nullable=False),
        sa.Column("cost_missed", sa.Double(), nullable=False),
        sa.Column("inclusion_probability", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f("fk_random_checks_publication_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_random_checks")),
        sa.UniqueConstraint(
            "publication_id",
            "store_id",
            "sku_id",
            name=op.f("uq_random_checks_publication_id_store_id_sku_id"),
        ),
    )
    op.create_index(
        op.f("ix_random_checks_week_store_id_sku_id"), "random_checks", ["week", "store_id", "sku_id"]
    )
    op.create_table(
        "removals",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("week", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Text(), nullable=False),
        sa.Column("removed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_removals")),
    )
    op.create_index(op.f("ix_removals_run_id"), "removals", ["run_id"])
    op.create_table(
        "acknowledgements",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("alert_id", sa.Integer(), nullable=False),
        sa.Column("acknowledged_by", sa.Text(), nullable=False),
        sa.Column("acknowledged_at", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_acknowledgements_alert_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acknowledgements")),
    )
    op.create_index(op.f("ix_acknowledgements_alert_id"), "acknowledgements", ["alert_id"], unique=False)
    op.execute(FLAGS)
