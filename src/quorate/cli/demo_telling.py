"""How the demo is told: in a terminal with a bar that goes on below the words, elsewhere in plain lines."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from quorate.cli.demo_proof import Claim
from quorate.cli.demo_traffic import Counts

__all__ = ["Telling"]

_INDENT: Final = 3
_BAR_COLUMNS: Final = 16
_MARKS: Final = {True: ("✓", "green"), False: ("✗", "bold red")}


class Telling:
    """Words, and a bar with as many parts as the story has acts. Use it as a context manager."""

    def __init__(self, console: Console, acts: int) -> None:
        self._console = console
        self._acts = acts
        self._act = 0
        self.counts: Callable[[], Counts | None] = lambda: None  # of the traffic, once there is some
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(_BAR_COLUMNS),
                _CountsColumn(self),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._progress.add_task(self._place(), total=acts)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def act(self, title: str) -> None:
        """The next one begins."""
        if self._progress is not None:
            self._progress.update(self._task, completed=self._act)
        elif self._act and (counts := self.counts()) is not None:
            self.say(f"so far {_counts_text(counts)}")
        self._act += 1
        self._print(Text(f"{self._act}  {title}", style="bold"), 0)
        if self._progress is not None:
            self._progress.update(self._task, description=self._place())

    def say(self, text: str) -> None:
        self._print(Text(text), _INDENT)

    def claim(self, claim: Claim) -> None:
        mark, style = _MARKS[claim.holds]
        self._print(Text.assemble((f"{mark} ", style), claim.line()), _INDENT)

    def _place(self) -> str:
        return f"act {max(self._act, 1)} of {self._acts}"

    def _print(self, text: Text, indent: int) -> None:
        """Lines of a terminal are broken where it ends; those for others are whole."""
        if self._console.is_terminal:
            self._console.print(Padding(text, (0, 0, 0, indent)))
        else:
            self._console.print(Text(" " * indent).append(text), soft_wrap=True)


class _CountsColumn(ProgressColumn):
    """How the traffic goes."""

    def __init__(self, telling: Telling) -> None:
        super().__init__()
        self._telling = telling

    def render(self, task: Task) -> Text:  # noqa: ARG002
        counts = self._telling.counts()
        return Text("" if counts is None else _counts_text(counts))


def _counts_text(counts: Counts) -> str:
    """
    >>> _counts_text(Counts(sent=1200, acknowledged=1190, failed=0, read=1180))
    '1,190 acknowledged, 1,180 read'
    >>> _counts_text(Counts(sent=1200, acknowledged=1190, failed=2, read=1180))
    '1,190 acknowledged, 2 FAILED, 1,180 read'
    """
    failed = f", {counts.failed:,} FAILED" if counts.failed else ""
    return f"{counts.acknowledged:,} acknowledged{failed}, {counts.read:,} read"
