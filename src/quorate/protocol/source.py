"""Source text that is written line by line and then compiled: what both codec compilers write into."""

from __future__ import annotations

from typing import Any

__all__ = ["SourceText"]


class SourceText:
    """The body of one function, and the names that it uses."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.lines: list[str] = []
        self.indent = 1
        self._counter = 0
        self._constants: dict[object, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        """A name that is not used yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: object, key: object = None) -> str:
        """A name for a value; the same value, or the same key, has the same name."""
        key = value if key is None else key
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.fresh(prefix)
            self.names[name] = value
        return name

    def compile(self, name: str, header: list[str], described: str) -> Any:
        """The function `name` with these first lines."""
        exec(compile("\n".join(header + self.lines), f"<{described}>", "exec"), self.names)
        return self.names[name]
