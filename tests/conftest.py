"""Settings for all tests."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,  # no timing assertions: a busy machine is not a failure
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("default")
