"""The rows of one file of a week, as codes, and the hash of the very bytes they were read from.

A file is brought into memory whole, hashed there and parsed there: whoever writes to the folder meanwhile,
the rows are those of the hash. That takes as much memory as the file is long until it is parsed, and passes
over the storage once instead of twice.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.core.coded_text import CodedText, Codes, Texts
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.files import first_line
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.sources import zone_of

IDS = ("store_id", "sku_id")
COLUMNS = (*IDS, "week", "units")
PROMO = "promo"
STAY = "let nothing write to the folder during a run, then type the same command again."
REPLACE = "write the file again, or take it out of the folder; then type the same command again."


@dataclass(frozen=True)
class Reading:
    """Which rows of a file are read: those of the week, promoted ones or not. ``recent``: how many weeks
    before it tell which stores there are."""

    week: str
    recent: int = 0
    without_promoted: bool = False

    @classmethod
    def of(cls, week: Week, config: RunConfig) -> Reading:
        return cls(str(week), config.recent_weeks, config.promotions == "exclude")


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of one file that are read; a text is made of distinct ids alone. ``reporting``: stores with a
    row of the week, read or left out for a promotion; ``before``: those with one of the weeks before."""

    path: str
    sha256: str
    stores: CodedText
    skus: CodedText
    units: NDArray[Any]
    promoted: int
    reporting: Texts
    before: Texts

    @classmethod
    def read(
        cls, path: str, reading: Reading, columns: Sequence[str] = COLUMNS, sha256: str | None = None
    ) -> FileRows:
        """``units`` are read where they are asked for. With ``sha256``, only the file that has this hash."""
        content = _content(path)
        found = hashlib.sha256(content).hexdigest()
        if sha256 not in (None, found):
            raise DataError(f"{path} is no longer the file whose ids and hash were taken for this run.", STAY)
        with _parsing(path):
            return cls._parsed(path, found, content, reading, columns)

    @classmethod
    def _parsed(
        cls, path: str, sha256: str, content: bytes, reading: Reading, columns: Sequence[str]
    ) -> FileRows:
        there = pq.read_schema(pa.BufferReader(content)).names
        missing = set(columns) - set(there)
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(sorted(missing))}.",
                "see ew_pipeline/core/schema.py for the columns.",
            )
        promo = [PROMO] if reading.without_promoted and PROMO in there else []
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[*IDS, "week"])
        table = file.read(columns=[*columns, *promo])
        stores, skus = (_coded(table[name], path, name) for name in IDS)
        weeks = _coded(_zoned(table["week"], zone_of(file, "week")), path, "week")
        week, labels = Week.parse(reading.week), _weeks(weeks.texts, path)
        rows = np.array([label == week for label in labels], dtype=bool)[weeks.codes]
        earlier = np.array([week.shift(-reading.recent) <= label < week for label in labels], dtype=bool)
        promoted = rows & _promoted(table[PROMO]) if promo else np.zeros(rows.size, dtype=bool)
        kept = rows & ~promoted
        return cls(
            path,
            sha256,
            stores.kept(kept),
            skus.kept(kept),
            table["units"].to_numpy()[kept] if "units" in columns else np.empty(0),
            int(np.count_nonzero(promoted)),
            stores.kept(rows).used(),
            stores.kept(earlier[weeks.codes]).used(),
        )

    def places(self, stores: Texts, skus: Texts) -> tuple[Codes, Codes]:
        """Of each row, where its ids are among these."""
        try:
            return self.stores.places(stores), self.skus.places(skus)
        except DataError as error:
            raise DataError(f"{self.path}: {error.message}", STAY) from error


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"{path} was in the folder when the run began, and is gone, seen from {platform.node()}.",
            f"mount the folder at the same path on all workers, if it is elsewhere only; {STAY}",
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", REPLACE) from error


@contextmanager
def _parsing(path: str) -> Iterator[None]:
    """Turn what Arrow says of a broken file into a DataError that names the file. No memory is no fault of
    its."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {first_line(error)}.", REPLACE) from error


def _coded(column: pa.ChunkedArray, path: str, name: str) -> CodedText:
    if column.null_count:
        raise DataError(
            f"{column.null_count} rows of {path} have no {name}.",
            "fill in the ids and week of every row.",
        )
    return CodedText.of(column)


def _zoned(weeks: pa.ChunkedArray, zone: str | None) -> pa.ChunkedArray:
    """Times that are instants, though their type does not say so, with their zone."""
    if zone is None or not pa.types.is_timestamp(weeks.type) or weeks.type.tz is not None:
        return weeks
    return pc.assume_timezone(weeks, zone)


def _weeks(labels: Texts, path: str) -> list[Week]:
    """Labels, or the date a week starts."""
    weeks, strange = [], []
    for label in labels.tolist():
        try:
            weeks.append(Week.parse(label))
        except UsageError:
            strange.append(label)
    if strange:
        raise DataError(
            f"{path} has weeks that are none: {name_some(map(repr, strange), len(strange))}.",
            "write ISO weeks such as 2026-W34, or the dates they start; then type the same command again.",
        )
    return weeks


def _promoted(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Flags, or numbers other than zero; nothing said is no."""
    flags = column.cast(pa.float64()) if not pa.types.is_boolean(column.type) else column.cast(pa.int8())
    return np.asarray(flags.fill_null(0).to_numpy() != 0)
