"""As many seeds as fit into a time, in processes side by side."""

import concurrent.futures
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

WORKERS = 2


def outcomes_of_seeds(run_one: Callable[[int], Any], first_seed: int, seconds: float) -> list[Any]:
    """What came of each; at least one for every worker. `run_one` must be a function of a module."""
    deadline = time.monotonic() + seconds
    seeds = iter(range(first_seed, first_seed + 1_000_000))
    outcomes = []
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(WORKERS, context) as pool:
        running = {pool.submit(run_one, next(seeds)) for _ in range(WORKERS)}
        while running:
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            outcomes += [future.result() for future in done]
            if time.monotonic() < deadline:
                running |= {pool.submit(run_one, next(seeds)) for _ in done}
    return outcomes
