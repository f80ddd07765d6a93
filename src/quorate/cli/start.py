"""The entrance: what the command `quorate` runs.

Nodes start often, in tests above all, and their users wait for them. So `quorate node FILE` listens before it
imports the rest of a node; it does without the other commands and the parser of all command lines, which take
as long as the node itself; and what a node imports is not searched for garbage, neither then nor later.
`quorate up` does without the other commands too.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

_NODE_ARGUMENTS = 3


def main() -> None:
    arguments = sys.argv
    is_node = len(arguments) == _NODE_ARGUMENTS and arguments[1] == "node"
    if is_node and not arguments[2].startswith("-"):
        _run_node(arguments[2])
    elif arguments[1:2] == ["up"]:
        from quorate.cli.up import app as up_app

        up_app(arguments[2:], prog_name="quorate up")
    else:
        from quorate.cli.main import app

        app(prog_name="quorate")


def _run_node(path: str) -> None:
    from quorate.node.early_listening import listen_early

    opened = listen_early(path)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads that nobody needs
    gc.disable()
    from quorate.cli.failures import errors_as_one_line
    from quorate.node.process import run

    gc.freeze()
    gc.enable()
    with errors_as_one_line():
        run(path, opened)


if __name__ == "__main__":
    main()
