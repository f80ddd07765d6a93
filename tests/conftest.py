"""Settings for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,  # no timing assertions: a busy machine is not a failure
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("default")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests recorded with `record_property("figure", ...)`, wherever they ran."""
    reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
    figures = sorted(
        {value for report in reports for name, value in report.user_properties if name == "figure"}
    )
    if figures:
        terminalreporter.section("figures")
        for figure in figures:
            terminalreporter.line(figure)
