"""Files removed on purpose, and what a publication said of a pair that was checked."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

EVIDENCE = ("anomaly_probability", "cost_false_alarm", "cost_missed", "inclusion_probability")


def upgrade() -> None:
    for name in EVIDENCE:
        op.add_column("checks", sa.Column(name, sa.Double(), nullable=True))
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


def downgrade() -> None:
    op.drop_index(op.f("ix_removals_run_id"), table_name="removals")
    op.drop_table("removals")
    for name in reversed(EVIDENCE):
        op.drop_column("checks", name)
