"""Commands in a real terminal of 80 columns, and what somebody in front of it would see.

with in_terminal("up", "--port", "0") as terminal:
    terminal.wait_for("active")
    terminal.press(CTRL_C)
    assert terminal.wait() == 0
assert terminal.screen.too_long == []
"""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator

COLUMNS, ROWS = 80, 50
DEADLINE_S = 120.0
CTRL_C, CTRL_D, TAB = b"\x03", b"\x04", b"\t"
_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>]|(.)", re.DOTALL)
# The terminal becomes that of the command and of nobody else, so that Ctrl-C is for it alone.
_IN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
from quorate.cli.start import main
main()
"""
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*|[()])?\Z")


class Screen:
    """Everything that a terminal has shown, with what has scrolled away above it.

    `too_long` are lines that went on behind the last column, as far as they got; `colours` are the orders
    that set one; `shown` is every line that was ever completed or painted over.
    """

    def __init__(self, columns: int = COLUMNS, height: int = ROWS) -> None:
        self.too_long: list[str] = []
        self.colours: list[str] = []
        self.shown: list[str] = []
        self.unknown: list[str] = []
        self._columns, self._height = columns, height
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def feed(self, text: str) -> None:
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        for token in _TOKENS.finditer(text.removesuffix(self._rest)):
            if token[3] is not None:
                self._put(token[3])
            elif token[2] is not None:
                self._obey(token[2], token[1])

    def _put(self, character: str) -> None:
        if character == "\n":
            self._keep()
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append([])
        elif character == "\r":
            self._keep()
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character >= " ":
            if self._column == self._columns:
                self.too_long.append(self.lines[self._row])
                self._column = 0
                self._put("\n")
            row = self._rows[self._row]
            row += " " * (self._column + 1 - len(row))
            row[self._column] = character
            self._column += 1

    def _obey(self, order: str, arguments: str) -> None:
        count = int(arguments) if arguments.isdigit() else 1
        match order:
            case "A":
                top = max(0, len(self._rows) - self._height)
                self._row = max(top, self._row - count)
            case "C":
                self._column = min(self._columns, self._column + count)
            case "D":
                self._column = max(0, self._column - count)
            case "K":
                self._keep()
                if arguments == "2":
                    self._rows[self._row] = []
                else:
                    del self._rows[self._row][self._column :]
            case "J":
                del self._rows[self._row][self._column :]
                del self._rows[self._row + 1 :]
            case "m":
                if re.search(r"(^|;)(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;|$)", arguments):
                    self.colours.append(arguments)
            case "h" | "l":
                pass  # whether the cursor is seen, and the like
            case _:
                self.unknown.append(f"{arguments}{order}")

    def _keep(self) -> None:
        line = self.lines[self._row]
        if line and self.shown[-1:] != [line]:
            self.shown.append(line)


class Terminal:
    """A command in a terminal. Ctrl-C reaches it as it does when somebody types it."""

    def __init__(self, process: "subprocess.Popen[bytes]", keyboard: int) -> None:
        self.process = process
        self.screen = Screen()
        self._keyboard = keyboard
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        pending = b""
        with contextlib.suppress(OSError):  # that the other end is closed: nothing comes any more
            while more := os.read(self._keyboard, 65536):
                pending += more
                whole = pending.decode(errors="ignore")
                if whole.encode() == pending:  # no character is cut in two
                    pending = b""
                    with self._lock:
                        self.screen.feed(whole)

    @property
    def text(self) -> str:
        with self._lock:
            return self.screen.text

    def press(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def wait_for(self, what: str | Callable[[], object]) -> None:
        """Until it is to be seen, or is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not (what in self.text if isinstance(what, str) else what()):
            assert time.monotonic() < deadline, f"no {what!r} in\n{self.text}"
            assert self.process.poll() is None or self._reader.is_alive(), f"no {what!r} in\n{self.text}"
            time.sleep(0.02)

    def wait(self) -> int:
        """The status of the command when it has ended, with everything shown that it had to say."""
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextlib.contextmanager
def in_terminal(
    *arguments: str, stdin: int | None = None, columns: int = COLUMNS, **environment: str
) -> Iterator[Terminal]:
    """`quorate` with these arguments. `stdin` is something else than the keyboard."""
    keyboard, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "INPUTRC")
    variables = {key: value for key, value in os.environ.items() if key not in unwanted}
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, *arguments],
        stdin=theirs if stdin is None else stdin,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**variables, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
    )
    os.close(theirs)
    terminal = Terminal(process, keyboard)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(DEADLINE_S)
        os.close(keyboard)
