"""Alembic's entry: runs the versions on the connection that ``connect`` hands over, in its transaction."""

from alembic import context

from ew_pipeline.ledger.connect import VERSION_TABLE
from ew_pipeline.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
)
context.run_migrations()
