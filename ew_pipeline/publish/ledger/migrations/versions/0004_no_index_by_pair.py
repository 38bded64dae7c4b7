"""Without the index of flags by pair and week: nobody asks by it, and it took a third of writing them."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index(op.f("ix_flags_store_id_sku_id_week"), table_name="flags")


def downgrade() -> None:
    op.create_index(op.f("ix_flags_store_id_sku_id_week"), "flags", ["store_id", "sku_id", "week"])
