"""`ew serve` as a command: what it says when it cannot begin, and how it ends."""

from __future__ import annotations

import signal
import subprocess

import pytest
from support.served import ask, environment, serve_words, serving


@pytest.mark.server
def test_a_home_with_nothing_in_it_a_port_that_is_taken_and_ctrl_c(tmp_path):
    home = tmp_path / "home"
    with serving(home) as (address, process):
        assert ask(address, "/health").status == 200  # that nothing was run yet is no fault
        assert "Nothing was run here yet" in ask(address, "/").text
        port = address.rpartition(":")[2]
        second = subprocess.run(
            serve_words("--port", port), env=environment(home), capture_output=True, text=True, check=False
        )
        assert second.returncode == 3
        assert f"port {port} of 127.0.0.1 is taken" in second.stderr
        assert "--port 0" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    assert not home.exists()
