"""Settings for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from whole_demo import Demo, run_once

settings.register_profile(
    "same draws",  # whether somebody's change lands shall not depend on a draw
    deadline=None,  # no timing assertions: a busy machine is not a failure
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("new draws", settings.get_profile("same draws"), derandomize=False)
settings.load_profile(f"{os.environ.get('QUORATE_DRAWS', 'same')} draws")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell does it for what runs in the background. Programs that tests start would inherit it and never
    # hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files that take minutes come first: one that began last would let the other worker wait for it.
SLOW_FILES = (
    "test_pipeline_runs.py",
    "test_table_formats.py",
    "test_readme.py",
    "test_standalone_pipeline.py",
    "test_pipeline_live.py",
    "test_declarative_project.py",
    "test_topic_sink.py",
    "test_topic_exactly_once.py",
    "test_history_connect.py",
    "test_answers_brokers.py",
    "test_topic_spark_4_0.py",
    "test_time_travel_images.py",
    "test_pipeline_apache.py",
    "test_pipeline_story.py",
    "test_history_tables.py",
    "test_metadata_spark_4_0.py",
    "test_alerts_stream.py",
    "test_java.py",
    "test_warehouse_ingest.py",
    "test_metadata_on_spark.py",
    # Of processes, of other people's programs, and of ZooKeeper.
    "test_processes.py",
    "test_terminal_clusters.py",
    "test_bad_directories.py",
    "test_apache_admin_tools.py",
    "test_apache_quorum.py",
    "test_apache_zookeeper.py",
    "test_group_failures.py",
    "test_group_failures_of_others.py",
    "test_broker_failures.py",
    "test_clients.py",
    "test_failing_disks.py",
    "test_moves_under_load.py",
    "test_demo.py",
    "test_last_release.py",
    "test_chaos.py",
    "test_zookeeper_faults.py",
    "test_apache_controller.py",
    "test_plane_faults.py",
    "test_wheel.py",
    "test_quotas_and_racks.py",
    "test_client_on_apache.py",
    "test_apache_compaction.py",
    "test_apache_admin_answers.py",
    "test_kafka_python_suite.py",
    "test_zookeeper_clusters.py",
    "test_metadata_of_apache.py",
    "test_apache_partition_files.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: at for at, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The directory that workers share is the one above their own."""
    own = tmp_path_factory.getbasetemp()
    return run_once(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


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
