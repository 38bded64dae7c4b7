import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ew_pipeline import __version__
from ew_pipeline.cli.main import EwGroup, app, lazy_command, options
from ew_pipeline.core.errors import DataError, FitError, UsageError


def raising(kind: str) -> None:
    """Raise what is asked for."""
    errors = {
        "data": DataError("the rows are wrong", "fix them"),
        "usage": UsageError("the week is wrong"),
        "fit": FitError("no answer"),
        "bug": ZeroDivisionError("division by zero"),
        "held": typer.Exit(4),
    }
    raise errors[kind]


def counting(name: str, instances: Annotated[int, typer.Option(help="How many.")] = 1) -> None:
    """Count things at length."""
    typer.echo(f"{name} {instances}")


@pytest.fixture
def run():
    """Run `ew` with two commands of this file under `ew reproduce`."""
    root = typer.Typer(cls=EwGroup, pretty_exceptions_enable=False)
    root.callback()(options)
    group = typer.Typer()
    root.add_typer(group, name="reproduce")
    lazy_command(group, "raising", f"{__name__}:raising", "Raise.")
    lazy_command(group, "counting", f"{__name__}:counting", "Count.")
    lazy_command(group, "absent", "ew_pipeline.no_such_module:function", "Not importable.")
    return lambda *args: CliRunner().invoke(root, args, prog_name="ew", env={"COLUMNS": "200"})


def test_version_is_printed_on_stdout():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"ew-pipeline {__version__}\n")


def test_help_lists_the_reproduce_group():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "reproduce" in result.stdout


def test_bench_with_options_alone_compares_libraries():
    alone = CliRunner().invoke(app, ["bench", "--observed", "10"], standalone_mode=False)
    assert "too few to time" in str(alone.exception)
    assert "libraries" in CliRunner().invoke(app, ["bench", "--help"]).stdout
    assert "No such command" in CliRunner().invoke(app, ["bench", "nonsense"]).output


@pytest.mark.parametrize("name", ["table1", "regret", "robustness", "chain"])
def test_the_experiments_are_listed_and_have_the_common_options(name):
    assert name in CliRunner().invoke(app, ["reproduce", "--help"]).stdout
    result = CliRunner().invoke(app, ["reproduce", name, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for option in ("--instances", "--seed", "--jobs", "--out", "--json"):
        assert option in result.stdout


def test_the_demonstration_is_listed_and_has_help():
    assert "demo" in CliRunner().invoke(app, ["--help"]).stdout
    assert "--seed" in CliRunner().invoke(app, ["demo", "--help"]).stdout


def test_an_unknown_command_is_a_usage_error():
    result = CliRunner().invoke(app, ["reprodcue"])
    assert result.exit_code == 2
    assert "reproduce" in result.stderr


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("data", 1, "Error: the rows are wrong\nNext:  fix them\n"),
        ("usage", 2, "Error: the week is wrong\n"),
        ("fit", 3, "Error: no answer\n"),
    ],
)
def test_an_error_becomes_its_exit_code_and_a_message_without_traceback(run, kind, code, message):
    result = run("reproduce", "raising", kind)
    assert result.exit_code == code
    assert result.stderr == message
    assert result.stdout == ""


def test_a_bug_fails_with_a_hint_instead_of_a_traceback(run):
    result = run("reproduce", "raising", "bug")
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: ZeroDivisionError: division by zero\nNext:  ")
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("kind", "code"), [("data", 1), ("bug", 3)])
def test_debug_adds_the_traceback_and_keeps_the_exit_code(run, kind, code):
    result = run("--debug", "reproduce", "raising", kind)
    assert result.exit_code == code
    assert "Traceback" in result.stderr
    assert "in raising" in result.stderr


def test_a_command_can_end_with_held_back(run):
    result = run("reproduce", "raising", "held")
    assert (result.exit_code, result.stderr) == (4, "")


def test_a_lazy_command_gets_its_arguments_in_any_order(run):
    assert run("reproduce", "counting", "stores", "--instances", "7").stdout == "stores 7\n"
    assert run("reproduce", "counting", "--instances=7", "stores").stdout == "stores 7\n"


def test_a_lazy_command_shows_its_own_help_and_usage(run):
    result = run("reproduce", "counting", "--help")
    assert result.exit_code == 0
    assert "Count things at length." in result.stdout
    assert "ew reproduce counting [OPTIONS]" in result.stdout
    assert "--instances" in result.stdout


@pytest.mark.parametrize("args", [["stores", "--wrong"], ["stores", "--instances", "many"], []])
def test_wrong_arguments_of_a_lazy_command_are_usage_errors(run, args):
    result = run("reproduce", "counting", *args)
    assert result.exit_code == 2
    assert "ew reproduce counting" in result.stderr


def test_listing_commands_does_not_import_them(run):
    result = run("reproduce", "--help")
    assert result.exit_code == 0
    assert "Not importable." in result.stdout
    assert run("reproduce", "absent").exit_code == 3


@pytest.mark.server
def test_the_installed_command_answers_and_refuses_in_a_process_of_its_own():
    def ew(*args):
        return subprocess.run(
            [sys.executable, "-m", "ew_pipeline.cli", *args], capture_output=True, text=True, check=False
        )

    version, unknown = ew("--version"), ew("nonsense")
    assert (version.returncode, version.stdout) == (0, f"ew-pipeline {__version__}\n")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "nonsense" in unknown.stderr


@pytest.mark.server
def test_starting_up_imports_nothing_heavy():
    heavy = ("numba", "numpy", "scipy", "pandas", "pyarrow", "matplotlib")
    code = f"import sys, ew_pipeline.cli; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
