"""Which probability was priced, theta over weeks, and pairs drawn at random to be checked."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

OVER_WEEKS = (
    "alpha_over_weeks",
    "alpha_over_weeks_low",
    "alpha_over_weeks_high",
    "anomaly_rate_over_weeks",
    "anomaly_rate_over_weeks_low",
    "anomaly_rate_over_weeks_high",
)


def upgrade() -> None:
    op.add_column("runs", sa.Column("pricing", sa.Text(), nullable=True))
    op.add_column("segments", sa.Column("calibration", sa.Text(), nullable=True))
    for name in OVER_WEEKS:
        op.add_column("segments", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("segments", sa.Column("weeks_pooled", sa.BigInteger(), nullable=True))
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


def downgrade() -> None:
    op.drop_index(op.f("ix_random_checks_week_store_id_sku_id"), table_name="random_checks")
    op.drop_table("random_checks")
    op.drop_column("segments", "weeks_pooled")
    for name in reversed(OVER_WEEKS):
        op.drop_column("segments", name)
    op.drop_column("segments", "calibration")
    op.drop_column("runs", "pricing")
