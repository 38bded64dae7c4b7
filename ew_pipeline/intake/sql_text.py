"""Names and texts as SQL writes them, and a number as an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def number(query: str, connection: duckdb.DuckDBPyConnection) -> int:
    """The answer to a query for one number. All of it is fetched: DuckDB refuses other work before that."""
    ((answer,),) = connection.execute(query).fetchall()
    return int(answer)
