"""The `ew` command. Exit codes: `ew_pipeline.core.console.ExitCode`.

This module imports nothing heavy, so that `ew --help` answers at once. A command is a function with typer's
annotations in a module of this folder, or of the studies, and is announced here by `lazy_command`; its module
is imported when the command is used.

A study is listed where there are studies; elsewhere it says that it needs a checkout.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ew_pipeline import __version__
from ew_pipeline.cli.studies import STUDIES, has_studies, refuse_without_studies
from ew_pipeline.core.console import ExitCode, fail
from ew_pipeline.core.errors import EwError


class EwGroup(TyperGroup):
    """The root command: turns errors into a message and an exit code."""

    debug = False

    def invoke(self, ctx: Any) -> Any:
        self.debug = bool(ctx.params.get("debug"))
        return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            return super().main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        except Exception as error:
            if not standalone_mode:
                raise
            if self.debug:
                traceback.print_exc()
            known = error if isinstance(error, EwError) else _unexpected(error)
            fail(known)
            sys.exit(known.exit_code)


class StudyGroup(TyperGroup):
    """A group of studies. Where there are none, it says so instead of its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_without_studies(" ".join([ctx.command_path.removeprefix("ew "), *args]))
        return super().parse_args(ctx, args)


class BenchGroup(StudyGroup):
    """``ew bench`` with options alone, or with nothing, is ``ew bench libraries``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        unnamed = not args or (args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx))
        return super().parse_args(ctx, ["libraries", *args] if unnamed else args)


def _unexpected(error: Exception) -> EwError:
    return EwError(
        f"{type(error).__name__}: {error}",
        "this is a fault of the program. Run again with `ew --debug …` and report what it prints.",
    )


app = typer.Typer(
    name="ew",
    cls=EwGroup,
    rich_markup_mode=None,  # plain help: the decorated one takes twice as long to start
    help="Find inventory records that are wrong, and the shelves worth checking.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(
    cls=StudyGroup,
    rich_markup_mode=None,
    help="Repeat the experiments of the paper.",
    no_args_is_help=True,
)
audit = typer.Typer(
    rich_markup_mode=None, help="Prove, replay and hand out what was published.", no_args_is_help=True
)
checks = typer.Typer(rich_markup_mode=None, help="What was found at the shelves.", no_args_is_help=True)
bench = typer.Typer(
    cls=BenchGroup,
    rich_markup_mode=None,
    help="Time and memory of our parts. Without a name: `ew bench libraries`.",
)
app.add_typer(audit, name="audit")
app.add_typer(bench, name="bench", hidden=not has_studies())
app.add_typer(checks, name="checks")
app.add_typer(reproduce, name="reproduce", hidden=not has_studies())


def lazy_command(group: typer.Typer, name: str, target: str, summary: str) -> None:
    """Announce ``name`` in ``group``; ``target`` = "module:function" is imported when it is used.

    The function is an ordinary typer command; its docstring is the long help, ``summary`` the line in the
    list of commands.
    """
    study = target.startswith(STUDIES)

    @group.command(
        name,
        help=summary,
        hidden=study and not has_studies(),
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def forward(context: typer.Context) -> None:
        module, _, function = target.partition(":")
        if study:
            refuse_without_studies(context.command_path.removeprefix("ew "))
        real = typer.Typer(add_completion=False, rich_markup_mode=None)
        real.command(name)(getattr(import_module(module), function))
        command = typer.main.get_command(real)
        # The parent's context, not this one's, or usage would read "ew group name name".
        with command.make_context(name, list(context.args), parent=context.parent) as inner:
            command.invoke(inner)


for name, target, summary in (
    ("demo", "cli.demo:demo", "The whole story on a simulated chain, nothing to start."),
    ("run", "cli.run:run", "One week, from its sales to published flags."),
    ("flags", "cli.published:flags", "The check list of a published week."),
    ("report", "cli.published:report", "Where the report of a week is."),
    ("promote", "cli.published:promote", "Make a run's configuration the champion."),
    ("rollback", "cli.published:rollback", "Make a week's earlier publication live again."),
    ("backfill", "cli.backfill:backfill", "Many weeks, one after the other."),
    ("evaluate", "cli.evaluate:evaluate", "How published weeks, policies and checks did."),
    ("convert", "studies.convert:convert", "A public dataset you downloaded, as a sales table."),
    ("explain", "cli.explain:explain", "Why a pair was flagged, or was not."),
    ("drift", "cli.drift:drift", "Is theta moving, and does anybody know."),
    ("up", "cli.up:up", "Servers, worker, pages and schedule, in the foreground."),
    ("serve", "cli.serve:serve", "Weeks, lists, runs and drift as pages."),
    ("doctor", "cli.doctor:doctor", "What is configured, and what is missing."),
    (
        "bench-dask",
        "studies.bench.dask:bench_dask",
        "What a cluster adds to a fit by row blocks: CPU, time per step, bytes moved.",
    ),
):
    lazy_command(app, name, f"ew_pipeline.{target}", summary)
for name, function, summary in (
    ("verify", "verify", "Is every row and file as it was written?"),
    ("replay", "replay", "Compute a run again and compare."),
    ("as-of", "as_of", "What was live on a day."),
    ("export", "export", "A package that can be verified without the database."),
    ("prune", "prune", "Remove what is stored per pair of old weeks."),
):
    lazy_command(audit, name, f"ew_pipeline.cli.audit:{function}", summary)
for name, function, summary in (
    ("import", "import_checks", "Read a table of checks."),
    ("add", "add_check", "Record one check."),
):
    lazy_command(checks, name, f"ew_pipeline.cli.checks:{function}", summary)
for name, target, summary in (
    ("libraries", "command:bench", "Our fits beside other libraries': time, memory, error."),
    ("pipeline", "pipeline:pipeline", "A whole weekly run: time by stage, memory, what the tools add."),
    ("page", "page:page", "Earlier benchmarks' tables into a page."),
    ("small", "small:small", "CPU time of fits of small weeks, and of the sampler."),
    ("ledger", "ledger:ledger", "Years of weeks: publish, ask, verify, size on disk."),
):
    lazy_command(bench, name, f"{STUDIES}.bench.{target}", summary)
for name, target, summary in (
    ("table1", "experiments.table1:table1", "Table 1: regret of every method on the paper's ensemble."),
    ("table2", "table2:table2", "The real-data protocol of section 4.2."),
    ("regret", "experiments.regret:regret", "How regret falls as the matrix grows."),
    ("auc", "experiments.auc:auc", "AUC against the ideal policy, and mean ROC."),
    ("limits", "experiments.limits:limits", "What sets the worst fifth apart."),
    (
        "robustness",
        "experiments.robustness:robustness",
        "Data that break the model's assumptions, against doing nothing.",
    ),
    ("page", "experiments.page:page", "A page on the studies that were kept, with their pictures."),
    ("chain", "experiments.chain:chain", "What the pairs' own history adds, on simulated chains."),
    ("drift", "drift.command:drift", "False alarms, power and attribution of the drift chart."),
):
    lazy_command(reproduce, name, f"{STUDIES}.{target}", summary)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ew-pipeline {__version__}")
        raise typer.Exit(ExitCode.DONE)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="EW_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options that come before any command."""


def main() -> None:
    """Entry point of the `ew` script."""
    app(prog_name="ew")
