"""Commands that run nodes inside themselves do not show what those log."""

import logging

from quorate.cli.lab import simulate_quorum
from quorate.cli.quiet import without_log_lines


def test_a_simulated_run_says_what_came_of_it_and_no_more(capfd, caplog):
    assert simulate_quorum(7, 3, steps_max=None, should_shrink=False)
    shown = capfd.readouterr()
    assert [line.split(" ")[0] for line in shown.out.splitlines()] == ["seed", "trace"]
    assert shown.err == ""
    assert caplog.records == []


def test_logging_is_afterwards_as_it_was(caplog):
    logger = logging.getLogger("quorate.node.1")
    with without_log_lines():
        logger.warning("hidden")
    logger.warning("shown")
    assert [record.message for record in caplog.records] == ["shown"]
