"""`ew serve` as a command: where it listens, how it ends, what it says when it cannot begin."""

from __future__ import annotations

import signal
import subprocess

import pytest
from serve.served import ask, environment, serve_words, serving


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_nothing_wrong(tmp_path, number):
    with serving(tmp_path / "home") as (address, process):
        assert ask(address, "/health").status == 200  # a home in which nothing was run is no fault
        assert "Nothing was run here yet" in ask(address, "/").text
        process.send_signal(number)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    assert not (tmp_path / "home").exists()


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path):
    with serving(tmp_path / "home") as (address, _):
        port = address.rpartition(":")[2]
        second = subprocess.run(
            serve_words("--port", port),
            env=environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 3
    assert f"port {port} of 127.0.0.1 is taken" in second.stderr
    assert "--port 0" in second.stderr
