"""What a broker answers, a module for each family of requests.

A handler is an object that was given the `Broker` and is called with a request. It answers at once whenever
nothing has to be waited for; only a request that waits costs a task.
"""
