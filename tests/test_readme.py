"""What README.md and the documents beside it show must work as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "infra" / "RUNBOOK.md", *sorted((ROOT / "infra" / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "expectations" / "README.md"]
MOST_LINES = 200
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def test_python_example_of_the_readme_runs_and_finds_the_wrong_records(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    exec(compile(block, "README.md", "exec"), {})
    rate, n_flags, precision = (float(word) for word in capsys.readouterr().out.split())
    assert 0.02 < rate < 0.1
    assert n_flags > 100
    assert precision > 0.6


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= MOST_LINES


@cache
def help_of(words: tuple[str, ...]) -> str:
    """Return what ``ew WORDS --help`` prints, or an empty text if there is no such command."""
    answer = CliRunner().invoke(app, [*words, "--help"])
    return answer.output if answer.exit_code == 0 else ""


def options_of(words: tuple[str, ...]) -> set[str]:
    """Return the options that ``ew WORDS`` takes."""
    if words == ("bench",):  # without a name it is `ew bench libraries`
        words = ("bench", "libraries")
    lines = re.findall(r"^  (-.*)$", help_of(words).partition("Options:")[2], re.M)
    return {option for line in lines for option in OPTION.findall(line.split("  ")[0])}


def code_of(page: Path) -> tuple[list[str], list[str]]:
    """Return the lines of the code blocks of a page, and its code spans."""
    text = page.read_text()
    fenced = re.findall(r"^```\n(.*?)^```$", text, re.S | re.M)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    indented = re.findall(r"^ {4}(\S.*)$", text, re.M)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return [line for block in fenced for line in block.splitlines()] + indented, spans


def commands_of(page: Path) -> Iterator[str]:
    lines, spans = code_of(page)
    for text in [line.split("#")[0] for line in lines] + spans:
        if re.match(r"ew( |$)", text):
            yield text.strip()


def parse(command: str) -> tuple[tuple[str, ...], list[str]]:
    """Split a shown command into the words that name it and the options that it is given."""
    words: tuple[str, ...] = ()
    for word in command.split()[1:]:
        group = re.search(rf"^  {re.escape(word)}(\s|$)", help_of(words).partition("Commands:")[2], re.M)
        if not group:
            break
        words = (*words, word)
    return words, OPTION.findall(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_exists(page):
    wrong, commands = [], list(commands_of(page))
    assert commands or page.name == "tests.md"  # which is about make and pytest
    for command in commands:
        words, options = parse(command)
        rest = command.split()[len(words) + 1 :]
        if "Commands:" in help_of(words) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            wrong.append(f"{command}: {rest[0]}")
        wrong += [f"{command}: {option}" for option in options if option not in options_of(words)]
    assert wrong == []


def test_an_option_named_alone_belongs_to_some_command():
    commands = {parse(command)[0] for page in PAGES for command in commands_of(page)}
    known = set().union(*(options_of(words) for words in commands))
    for page in PAGES:
        alone = [span for span in code_of(page)[1] if span.startswith("--")]
        unknown = [span for span in alone if not set(OPTION.findall(span)) <= known]
        assert unknown == [], page.name


@pytest.mark.parametrize("page", LINKED, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_somewhere(page):
    """Files exist, and headings that are named after a # too."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("http"):
            continue
        name, _, heading = link.partition("#")
        place = page.parent / name if name else page
        assert place.exists(), f"{page.name} links to {link}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", place.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors, f"{page.name} links to {link}"


def test_every_section_of_figures_names_its_command_and_its_day():
    text = (ROOT / "infra" / "docs" / "results.md").read_text()
    sections = [part for part in text.split("\n## ")[1:] if re.search(r"^\|.*\d[.,]\d", part, re.M)]
    assert len(sections) >= 5
    for section in sections:
        assert re.search(r"Command: `ew ", section), section[:40]
        assert re.search(r"Recorded 20\d\d-\d\d-\d\d", section), section[:40]
