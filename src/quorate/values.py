"""`dataclass` as in the standard library, at a small part of what it costs to define one; and `plain_members`
for enumerations, at a small part of what it costs to use one.

A node defines hundreds of them when it is imported, and the standard library writes and compiles five or six
functions for each, most of which are never called: that was a third of the time until a node listens. Here
what must be code of its own to be quick, `__init__` and comparisons, is compiled when it is first called, and
the other methods are closures over the names of the fields. All else, fields and slots and `__match_args__`,
is done by the standard library, and so its other functions (`replace`, `fields`, `asdict`) take these classes
for what they are. What is not known here (`order`, and the like) is left to it altogether.

For a type checker the two are one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["compile_constructors", "dataclass", "plain_members"]

E = TypeVar("E", bound=type[Enum])

_OPTIONS: Final = frozenset({"frozen", "slots", "kw_only", "eq", "repr"})

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """The decorator, with or without options.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), dataclasses.replace(Point(1), y=2)
        (Point(x=1, y=0), True, Point(x=1, y=2))
        """
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        if not options.keys() <= _OPTIONS or "__init__" in cls.__dict__:
            return dataclasses.dataclass(cls, **options)
        return _defined(cls, **options)


def plain_members(cls: E) -> E:
    """A decorator of enumerations that are looked at with every request: their members are attributes like
    any other. Python 3.11 calls a function for each look at one, and later versions do not.

    >>> @plain_members
    ... class Colour(Enum):
    ...     RED = 1
    >>> Colour.RED, Colour(1) is Colour.RED is Colour["RED"] is vars(Colour)["RED"]
    (<Colour.RED: 1>, True)
    """
    for name, member in cls.__members__.items():
        type.__setattr__(cls, name, member)
    return cls


def _defined(
    cls: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002
) -> type:
    own = frozenset(cls.__dict__)  # what is written in the class stays as it is
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or it would be worked out
    made: Any = dataclasses.dataclass(
        cls, init=False, repr=False, eq=False, frozen=False, slots=slots, kw_only=kw_only
    )
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields)
    later = partial(_compiled_later, made)
    methods = {"__init__": later("__init__", lambda: _init_of(made, fields, is_frozen=frozen))}
    if repr:
        methods["__repr__"] = _repr_of(tuple(field.name for field in fields if field.repr))
    if eq:
        compared = [field.name for field in fields if field.compare]
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        methods["__eq__"] = later("__eq__", lambda: _eq_of(compared))
        methods["__hash__"] = later("__hash__", lambda: _hash_of(hashed)) if frozen else None
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refusals(made, frozenset(names))
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _states(names)
    for name, method in methods.items():
        # A class with an `__eq__` of its own and no `__hash__` has a None there, which nobody wrote.
        if name not in own or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


_waiting: list[Callable[[], Any]] = []  # the constructors, compiled or not


def compile_constructors() -> None:
    """Compiles what would be compiled when it is called for the first time: for a process that is to be
    forked, so that its children have it in common."""
    while _waiting:
        _waiting.pop()()


def _compiled_later(cls: Any, name: str, compile_it: Callable[[], Any]) -> Any:
    """A method that is compiled when it is called for the first time, and then called."""

    def replaced() -> Any:
        if vars(cls).get(name) is method:
            compiled = compile_it()
            compiled.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, compiled)
        return vars(cls)[name]

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return replaced()(self, *args, **kwargs)

    if name == "__init__":
        _waiting.append(replaced)
    return method


def _init_of(cls: Any, fields: tuple[dataclasses.Field[Any], ...], *, is_frozen: bool) -> Any:
    scope: dict[str, Any] = {"_unset": dataclasses.MISSING, "_set": object.__setattr__}
    first: list[str] = []
    later: list[str] = []
    body: list[str] = []
    for field in fields:
        name, has_factory = field.name, field.default_factory is not dataclasses.MISSING
        scope[f"_default_{name}"] = field.default_factory if has_factory else field.default
        has_default = has_factory or field.default is not dataclasses.MISSING
        given = name if field.init else f"_default_{name}" + "()" * has_factory
        if field.init:
            default = "" if not has_default else f"=_default_{name}" if not has_factory else "=_unset"
            (later if field.kw_only else first).append(name + default)
            if has_factory:
                given = f"_default_{name}() if {name} is _unset else {name}"
        elif not has_default:
            continue
        body.append(f"_set(_self, {name!r}, {given})" if is_frozen else f"_self.{name} = {given}")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    parameters = ["_self", *first, *(["*", *later] if later else [])]
    return _function("__init__", parameters, body or ["pass"], scope)


def _eq_of(names: list[str]) -> Any:
    mine, others = (_tuple_of(f"{one}.{name}" for name in names) for one in ("self", "other"))
    body = [
        f"if other.__class__ is self.__class__: return {mine} == {others}",
        "return NotImplemented",
    ]
    return _function("__eq__", ["self", "other"], body, {})


def _hash_of(names: list[str]) -> Any:
    body = [f"return hash({_tuple_of(f'self.{name}' for name in names)})"]
    return _function("__hash__", ["self"], body, {})


def _tuple_of(items: Iterable[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def _function(name: str, parameters: list[str], body: list[str], scope: dict[str, Any]) -> Any:
    exec(f"def {name}({', '.join(parameters)}):\n " + "\n ".join(body), scope)
    return scope[name]


def _repr_of(names: tuple[str, ...]) -> Any:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _refusals(cls: Any, names: frozenset[str]) -> tuple[Any, Any]:
    """What becomes of assignments to a frozen value: nothing. A subclass may have more, of its own."""

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _states(names: tuple[str, ...]) -> tuple[Any, Any]:
    """For `copy` and `pickle`, which would assign."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__
