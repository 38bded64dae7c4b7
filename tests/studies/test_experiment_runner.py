"""A study that is stopped goes on where it stopped, and never takes over what other code has made."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from ew_pipeline.core.errors import EwError, FitError, UsageError
from ew_pipeline.studies import table2
from ew_pipeline.studies.drift import fitted, retail
from ew_pipeline.studies.experiments import chain, options, runner
from ew_pipeline.studies.experiments.runner import IN_THIS_PROCESS, Study, code_hash

DONE: list[int] = []


@dataclass(frozen=True)
class Square:
    number: int
    fails: str = ""

    @property
    def name(self) -> str:
        return f"square of {self.number}"

    def identity(self):
        return asdict(self)


def square(task: Square) -> dict[str, float]:
    if task.fails == "bug":
        raise ZeroDivisionError("division by zero")
    if task.fails == "fit":
        raise FitError("no answer", "try again")
    DONE.append(task.number)
    return {"number": task.number, "value": task.number**2 / 3}


def threads(task: Square) -> dict[str, str | None]:
    return {"threads": os.environ.get("NUMBA_NUM_THREADS"), "prepared": os.environ.get("EW_TEST_PREPARED")}


def prepare() -> None:
    os.environ["EW_TEST_PREPARED"] = "yes"


def nothing() -> None:
    pass


@pytest.fixture(autouse=True)
def forget():
    DONE.clear()


def study(title: str = "squares", sources: tuple[str, ...] = ("core/errors.py",)) -> Study[Square]:
    return Study(title, square, prepare=nothing, sources=sources)


def tasks(*numbers: int) -> list[Square]:
    return [Square(number) for number in numbers]


def test_records_come_in_the_order_of_the_tasks():
    rows = study().run(tasks(3, 1, 2), jobs=IN_THIS_PROCESS)
    assert [row["number"] for row in rows] == [3, 1, 2]


def test_a_second_run_takes_over_what_is_there_and_runs_the_rest(tmp_path):
    study().run(tasks(1, 2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    DONE.clear()
    rows = study().run(tasks(1, 2, 3), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [3]
    assert rows == study().run(tasks(1, 2, 3), jobs=IN_THIS_PROCESS)


def test_a_run_that_fails_keeps_the_records_before_it(tmp_path):
    with pytest.raises(RuntimeError, match="square of 9: ZeroDivisionError: division by zero"):
        study().run([*tasks(1, 2), Square(9, "bug"), *tasks(3)], jobs=IN_THIS_PROCESS, folder=tmp_path)
    DONE.clear()
    study().run(tasks(1, 2, 3), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [3]


def test_an_error_of_the_package_keeps_its_kind_and_names_the_task():
    with pytest.raises(FitError, match=r"square of 9: no answer\nNext: try again"):
        study().run([Square(9, "fit")], jobs=IN_THIS_PROCESS)


def test_a_line_cut_off_by_a_crash_is_run_again_and_spoils_nothing(tmp_path):
    study().run(tasks(1, 2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    file = tmp_path / "squares.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    DONE.clear()
    rows = study().run(tasks(1, 2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [2]
    assert [row["number"] for row in rows] == [1, 2]
    assert file.read_bytes() == whole


def test_a_whole_record_without_its_newline_is_not_glued_to_the_next(tmp_path):
    study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)
    file = tmp_path / "squares.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    study().run(tasks(1, 2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert [json.loads(line)["record"]["number"] for line in file.read_text().splitlines()] == [1, 2]


def test_a_file_that_holds_no_records_is_refused(tmp_path):
    (tmp_path / "squares.jsonl").write_text("not a record\n")
    with pytest.raises(UsageError, match="no record"):
        study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)


def test_records_of_other_code_or_another_version_are_not_taken_over(tmp_path, monkeypatch):
    study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)
    DONE.clear()
    study(sources=("core/console.py",)).run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [1]
    monkeypatch.setattr(runner, "__version__", "99.0")
    study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [1, 1]


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path / "file" / "below")


def test_two_studies_do_not_write_to_the_same_records_at_once(tmp_path):
    study().run(tasks(1), jobs=IN_THIS_PROCESS, folder=tmp_path)
    with (tmp_path / "squares.jsonl").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another study is writing"):
            study().run(tasks(2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    study().run(tasks(2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [1, 2]


def test_studies_of_the_same_kind_share_their_records(tmp_path):
    first = Study("one", square, prepare=nothing, sources=(), records="shared")
    other = Study("two", square, prepare=nothing, sources=(), records="shared")
    first.run(tasks(1, 2), jobs=IN_THIS_PROCESS, folder=tmp_path)
    other.run(tasks(2, 3), jobs=IN_THIS_PROCESS, folder=tmp_path)
    assert DONE == [1, 2, 3]


def test_the_code_hash_sees_meaning_and_not_layout(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PACKAGE", tmp_path)
    module = tmp_path / "part" / "module.py"
    module.parent.mkdir()

    def hashed(text: str) -> str:
        module.write_text(text)
        return code_hash(["part"])

    first = hashed("x = 1\n")
    assert hashed("# why\nx  =  1\n") == first
    assert hashed("x = 2\n") != first


@pytest.mark.parametrize("source", ["gone.py", "empty"])
def test_a_source_without_a_file_is_an_error(source, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PACKAGE", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EwError, match="records of a study depend on it"):
        code_hash([source])


@pytest.mark.parametrize("study", [chain, fitted, options, retail, table2], ids=lambda study: study.__name__)
def test_every_study_names_sources_that_are_there(study):
    assert len(code_hash(study.SOURCES)) == 16


@pytest.mark.server
def test_workers_are_prepared_and_have_one_thread_each_and_leave_this_process_alone(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    rows = Study("threads", threads, prepare=prepare, sources=()).run(tasks(1, 2), jobs=2)
    assert rows == 2 * [{"threads": "1", "prepared": "yes"}]
    assert os.environ["NUMBA_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in os.environ
    assert "EW_TEST_PREPARED" not in os.environ


def wait_in_a_worker(task: Square) -> dict[str, int]:
    Path(task.fails).write_text(str(os.getpid()))
    time.sleep(60)
    return {}


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.server
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked to end the workers")
def test_the_workers_of_a_killed_study_end_with_it(tmp_path):
    place = tmp_path / "pid"
    (tmp_path / "study.py").write_text(
        "import test_experiment_runner as t\n"
        "if __name__ == '__main__':\n"
        f"    task = t.Square(1, {str(place)!r})\n"
        "    t.Study('wait', t.wait_in_a_worker, prepare=t.nothing, sources=()).run([task], jobs=1)\n"
    )
    here = str(Path(__file__).parent)
    parent = subprocess.Popen(
        [sys.executable, "study.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": here}
    )
    wait_until(lambda: place.exists() and place.read_text() != "")
    worker = int(place.read_text())
    assert is_running(worker)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(worker))


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.server
def test_an_error_in_a_worker_reaches_us_as_what_it_is():
    with pytest.raises(FitError, match="square of 9: no answer"):
        study().run([Square(9, "fit")], jobs=1)
