"""What flags share is kept once: rows of their own columns, and a view `flags` with the whole story of each.

Week, theta, model, runs and hashes of a flag stand in publications, segments and runs already. Repeated in
every flag they made up half of the ledger. The hashes of flags are taken over the whole story still, so those
that were written before stay valid. A ledger whose flags say something else than those tables was changed by
hand: it is left as it is.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from ew_pipeline.publish.ledger.failures import LedgerError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OWN = (
    "publication_id, position, store_id, sku_id, segment, units, expected_units, anomaly_probability, "
    "cost_false_alarm, cost_missed, threshold, expected_saving, store_rank, reasons, level, row_hash"
)
PUBLICATION = ("week", "run_id", "data_hash", "config_hash", "code_version")
SEGMENT = (
    "alpha", "alpha_low", "alpha_high", "anomaly_rate", "anomaly_rate_low", "anomaly_rate_high",
    "rank", "noise", "anomaly",
)  # fmt: skip
RUN = ("flow_run_id", "mlflow_run_id")
# Outer joins: a flag is to be seen, and counted, also where a row is gone that it shares columns with.
JOINED = """
FROM {flags} AS f
LEFT JOIN publications AS p ON p.id = f.publication_id
LEFT JOIN segments AS s ON s.run_id = p.run_id AND s.segment = f.segment
LEFT JOIN runs AS r ON r.run_id = p.run_id
 AND r.revision = (SELECT max(n.revision) FROM runs AS n WHERE n.run_id = p.run_id)
"""
FOUND = ("p.id IS NOT NULL", "s.run_id IS NOT NULL", "r.run_id IS NOT NULL")
WHOLE = """
SELECT f.publication_id, f.position, f.store_id, f.sku_id, p.week, f.segment, f.units, f.expected_units,
 f.anomaly_probability, f.cost_false_alarm, f.cost_missed, f.threshold, f.expected_saving, f.store_rank,
 f.reasons, f.level, s.alpha, s.alpha_low, s.alpha_high, s.anomaly_rate, s.anomaly_rate_low,
 s.anomaly_rate_high, s.rank, s.noise, s.anomaly, p.run_id, r.flow_run_id, r.mlflow_run_id, p.data_hash,
 p.config_hash, p.code_version, f.row_hash
"""


def upgrade() -> None:
    _lock("flags")
    same = "IS" if op.get_bind().dialect.name == "sqlite" else "IS NOT DISTINCT FROM"
    homes = (("p", PUBLICATION), ("s", SEGMENT), ("r", RUN))
    shared = [f"f.{name} {same} {home}.{name}" for home, names in homes for name in names]
    changed = _count_unlike("flags", (*FOUND, *shared))
    if changed:
        raise LedgerError(
            f"{changed} flags of the ledger say something else than their publication, run or segment does.",
            "they were changed by hand: look with the version that wrote them (ew audit verify), and restore "
            "the ledger from a backup. It is untouched.",
        )
    _make("flag_rows", [])
    op.execute(f"INSERT INTO flag_rows ({OWN}) SELECT {OWN} FROM flags ORDER BY publication_id, position")
    op.drop_table("flags")
    op.execute(f"CREATE VIEW flags AS {WHOLE} {JOINED.format(flags='flag_rows')}")


def downgrade() -> None:
    _lock("flag_rows")
    lost = _count_unlike("flag_rows", FOUND)
    if lost:
        raise LedgerError(
            f"{lost} flags of the ledger have lost their publication, run or segment.",
            "rows were changed by hand: ew audit verify names them; restore the ledger from a backup. It is "
            "untouched.",
        )
    op.execute("DROP VIEW flags")
    theta: list[sa.Column[Any]] = [
        sa.Column(name, sa.Double(), nullable=name.endswith(("low", "high"))) for name in SEGMENT[:6]
    ]
    _make(
        "flags",
        [
            sa.Column("week", sa.Text(), nullable=False),
            *theta,
            sa.Column("rank", sa.BigInteger(), nullable=False),
            sa.Column("noise", sa.Text(), nullable=False),
            sa.Column("anomaly", sa.Text(), nullable=False),
            sa.Column("run_id", sa.Text(), nullable=False),
            *(sa.Column(name, sa.Text(), nullable=True) for name in RUN),
            *(sa.Column(name, sa.Text(), nullable=False) for name in PUBLICATION[2:]),
        ],
    )
    names = f"{OWN}, {', '.join((*PUBLICATION, *SEGMENT, *RUN))}"
    chosen = ", ".join(
        [f"f.{name}" for name in OWN.split(", ")]
        + [f"p.{name}" for name in PUBLICATION]
        + [f"s.{name}" for name in SEGMENT]
        + [f"r.{name}" for name in RUN]
    )
    op.execute(f"INSERT INTO flags ({names}) SELECT {chosen} {JOINED.format(flags='flag_rows')}")
    op.drop_table("flag_rows")


def _lock(table: str) -> None:
    """Nothing is published between here and the end; SQLite lets one writer in at a time anyway."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")


def _count_unlike(table: str, conditions: tuple[str, ...]) -> int:
    """How many flags do not meet all of the conditions, none of which is ever NULL."""
    unlike = f"SELECT count(*) {JOINED.format(flags=table)} WHERE NOT ({' AND '.join(conditions)})"
    return int(op.get_bind().execute(sa.text(unlike)).scalar_one())


def _make(name: str, more: list[sa.Column[Any]]) -> None:
    op.create_table(
        name,
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
        *more,
        sa.Column("row_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["publications.id"], name=op.f(f"fk_{name}_publication_id")
        ),
        sa.PrimaryKeyConstraint("publication_id", "position", name=op.f(f"pk_{name}")),
        sa.UniqueConstraint(
            "publication_id", "store_id", "sku_id", name=op.f(f"uq_{name}_publication_id_store_id_sku_id")
        ),
    )
