"""What README.md shows must work as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_example_of_the_readme_runs_and_finds_the_wrong_records(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(block, "README.md", "exec"), {})
    rate, n_flags, precision = (float(word) for word in capsys.readouterr().out.split())
    assert 0.02 < rate < 0.1
    assert n_flags > 100
    assert precision > 0.6


def test_every_command_of_the_readme_exists():
    from typer.main import get_command

    from ew_pipeline.cli import app

    root = get_command(app)
    for words in re.findall(r"`ew ([a-z0-9 ]+?)(?: --[^`]*)?`", README):
        command = root
        for word in words.split():
            assert word in getattr(command, "commands", {}), f"README names `ew {words}`; there is none"
            command = command.commands[word]
