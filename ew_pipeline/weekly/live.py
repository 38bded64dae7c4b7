"""The live files of a week: copies of what its current publication's run made, in ``reports/<week>``.

The ledger says what is live; these copies are where people look. They are made after the ledger's
transaction, and made again by anything that finds them missing or old, so a crash in between heals itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.ledger import Publication
from ew_pipeline.outputs.check_list import ARCHIVE, FOLDER

LISTS = ("check_list.csv", "check_list.json", "check_list.parquet", FOLDER, ARCHIVE)
SHOWN = ("report.html", *LISTS, "data_docs")
MARK = "publication.txt"


def show_live(publication: Publication, settings: Settings) -> Path:
    """Make ``reports/<week>`` show this publication; returns the folder."""
    folder = settings.reports / str(publication.week)
    mark = f"{publication.id} {publication.run_id}\n"
    if (
        (folder / MARK).is_file()
        and (folder / MARK).read_text() == mark
        and (folder / "report.html").is_file()
    ):
        return folder
    source = settings.runs / publication.run_id
    if not (source / "report.html").is_file():
        raise EwError(
            f"the files of run {publication.run_id} are not in {source}.",
            f"restore that folder from a backup, or run the week again: ew run --week {publication.week} …",
        )
    settings.reports.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{publication.week}-", dir=settings.reports))
    fresh.chmod(0o755)
    for name in SHOWN:
        if (source / name).is_dir():
            _copy_folder(source / name, fresh / name)
        elif (source / name).is_file():
            shutil.copy2(source / name, fresh / name)
    (fresh / MARK).write_text(mark)
    _swap(fresh, folder)
    return folder


def _copy_folder(source: Path, target: Path) -> None:
    """The files in it, without their times: ``shutil.copytree`` takes thrice as long for 70,000 lists."""
    for place, _, names in os.walk(source):
        beside = f"{target}{place.removeprefix(str(source))}"
        os.mkdir(beside)
        for name in names:
            with open(f"{place}/{name}", "rb", 0) as old, open(f"{beside}/{name}", "wb", 0) as new:
                new.write(old.read())


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old-{fresh.name.rpartition('-')[2]}")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
