"""A package for an outside auditor: rows, files, hashes, and a program that verifies them without us."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.audit import standalone
from ew_pipeline.audit.history import is_per_pair
from ew_pipeline.audit.verify import removed_files, vouched
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import canonical_json, code_version, file_hash
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication, tables
from ew_pipeline.ledger.records import moment, now
from ew_pipeline.outputs.check_list import render_flags

README = Path(__file__).with_name("package_readme.md")
FOR_PEOPLE = ("publications", "runs", "checks")
WHOLE = ("publications", "config_roles")  # of all weeks: they show that nothing was left out


@dataclass(frozen=True)
class Exported:
    """``package_hash``: of manifest.json, to be handed over on another way than the package."""

    place: Path
    weeks: tuple[str, ...]
    publications: int
    flags: int
    files: int
    left_out: int
    package_hash: str


def export(
    ledger: Ledger, settings: Settings, first: Week, last: Week, target: Path, *, by: str, slim: bool = False
) -> Exported:
    """Write the package into ``target``: a new folder, or a ZIP file if its name says so.

    ``slim`` leaves out snapshots and what is stored per pair; their hashes stay in it.
    """
    weeks = tuple(str(week) for week in first.through(last))
    if not weeks:
        raise UsageError(f"{first} is after {last}.", "give the earlier week first: --from W --to W.")
    published = [one for one in ledger.publications() if str(one.week) in weeks]
    if not published:
        raise UsageError(f"nothing was published for {first} to {last}.", "ew audit as-of today lists weeks.")
    with _making(target) as folder:
        package = _Package(folder, ledger, settings, weeks, slim)
        package.add_ledger(published)
        own = [one for one in published if one.kind == "publish"]
        for publication in own:
            package.add_run(publication)
        for data_hash in sorted({one.data_hash for one in own}):
            package.add_snapshot(data_hash)
        package_hash = package.close(by)
        return Exported(
            place=target,
            weeks=weeks,
            publications=len(published),
            flags=sum(one.flags_count for one in own),
            files=sum(1 for path in folder.rglob("*") if path.is_file()),
            left_out=len(package.left_out),
            package_hash=package_hash,
        )


class _Package:
    """A folder that is being filled."""

    def __init__(
        self, folder: Path, ledger: Ledger, settings: Settings, weeks: tuple[str, ...], slim: bool
    ) -> None:
        self.folder = folder
        self.ledger = ledger
        self.settings = settings
        self.weeks = weeks
        self.slim = slim
        self.left_out: list[str] = []
        self.removed = removed_files(ledger)

    def add_ledger(self, published: list[Publication]) -> None:
        """Rows as JSON lines, and the ones that people read as CSV."""
        self._rows("chain", self.ledger.table("chain"))
        alerts: set[int] = set()
        for name in (table.name for table in tables.CHAINED):
            frame = self.ledger.table(name)
            if name == "acknowledgements":
                frame = frame[frame["alert_id"].isin(alerts)]
            elif name not in WHOLE:
                frame = frame[frame["week"].isin(self.weeks)]
            if name == "alerts":
                alerts = set(frame["id"])
            self._rows(name, frame)
            if name in FOR_PEOPLE:
                self._sheet(name, frame[frame["week"].isin(self.weeks)])
        flags = []
        for publication in published:
            if publication.kind == "publish":
                frame = self.ledger.table("flags", publication_id=publication.id)
                self._rows(f"flags/{publication.id}", frame)
                flags.append(frame)
        self._sheet("flags", pd.concat(flags, ignore_index=True))

    def add_run(self, publication: Publication) -> None:
        source = self.ledger.run(publication.run_id).folder
        for path in vouched(publication.files):
            place = f"runs/{publication.run_id}/{path}"
            if self.slim and is_per_pair(path):
                self.left_out.append(place)
            elif path not in self.removed.get(publication.run_id, {}):
                self._copy(source / path, place)
        # Files that change after publication are vouched for no more, so they stay here.
        self.left_out += [
            f"runs/{publication.run_id}/{path}"
            for path in set(publication.files) - set(vouched(publication.files))
        ]

    def add_snapshot(self, data_hash: str) -> None:
        source = self.settings.snapshots / data_hash
        if self.slim:
            self.left_out.append(f"snapshots/{data_hash}")
            return
        for path in sorted(source.glob("*")) or [source]:
            self._copy(path, f"snapshots/{data_hash}/{path.name}")

    def close(self, by: str) -> str:
        """Add the program, the README and the manifest; the hash of the manifest."""
        head = self.ledger.head()
        shutil.copyfile(str(standalone.__file__), self.folder / "verify.py")
        words = README.read_text(encoding="utf-8").format(
            first=self.weeks[0],
            last=self.weeks[-1],
            made_at=moment(now()),
            made_by=by,
            ledger_id=head.ledger_id,
            code_version=code_version(),
            head_seq=head.seq,
            head_hash=head.hash,
        )
        (self.folder / "README.md").write_text(words, encoding="utf-8")
        manifest = {
            "format": 1,
            "ledger_id": head.ledger_id,
            "head": {"seq": head.seq, "hash": head.hash},
            "weeks": list(self.weeks),
            "left_out": sorted(self.left_out),
            "files": {
                path.relative_to(self.folder).as_posix(): file_hash(path)
                for path in sorted(self.folder.rglob("*"))
                if path.is_file()
            },
        }
        place = self.folder / standalone.MANIFEST
        place.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return file_hash(place)

    def _rows(self, name: str, frame: pd.DataFrame) -> None:
        place = self.folder / "ledger" / f"{name}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("w", encoding="utf-8") as file:
            file.writelines(canonical_json(row) + "\n" for row in plain_rows(frame))

    def _sheet(self, name: str, frame: pd.DataFrame) -> None:
        place = self.folder / "csv" / f"{name}.csv"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(render_flags(frame, "csv"))

    def _copy(self, source: Path, place: str) -> None:
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(source, target)
        except FileNotFoundError:
            raise EwError(
                f"{source} is gone, so the package would not be whole.",
                "ew audit verify names all that is missing; restore it from a backup.",
            ) from None


def plain_rows(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows as the ledger hashed them: numbers as Python's own, empty columns left out."""
    names = list(frame.columns)
    for values in frame.itertuples(index=False, name=None):
        yield {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in zip(names, values, strict=True)
            if value is not None and value is not pd.NA and value == value
        }


@contextmanager
def _making(target: Path) -> Iterator[Path]:
    """A folder that takes its place only when it is whole."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already.", "choose another name, or move it away.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as place:
        folder = Path(place) / "package"
        folder.mkdir()
        yield folder
        if target.suffix.lower() == ".zip":
            packed = Path(place) / "package.zip"
            _zip(folder, packed, root=target.stem)
            packed.replace(target)
        else:
            if target.exists():
                target.rmdir()
            folder.rename(target)


def _zip(folder: Path, packed: Path, root: str) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, f"{root}/{path.relative_to(folder).as_posix()}")
