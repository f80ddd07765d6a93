"""How a message is declared: one class for all its versions.

    class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+", listeners="controller"):
        broker_id: Int32
        broker_epoch: Int64 = -1
        offline_log_dirs: Array[Uuid] = field(default=(), since=1, tag=0)

The class statement is all there is: instances are slotted, their constructor takes the fields as keywords,
they are mutable, equal by value and therefore unhashable. A field that is not in every version states its
default. A struct is declared inside the struct that contains it; one that several share stands at module
level. What the class knows about itself is in dunder names, because fields are called `key` and `versions`.

Nothing is compiled here. The constructor is generated at its first call, the codecs in `codec` at theirs,
so that importing seven hundred declarations stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, dataclass_transform

__all__ = [
    "VERSION_MAX",
    "Field",
    "Message",
    "Record",
    "Request",
    "Response",
    "Struct",
    "field",
    "version_range",
    "write_constructor",
]

VERSION_MAX: Final = 0x7FFF

Listener = Literal["broker", "controller", "broker controller", ""]


class _Missing:
    def __repr__(self) -> str:
        return "(required)"


MISSING: Final = _Missing()


def version_range(text: str) -> range:
    """The versions that `"0-4"`, `"3"`, `"2+"` or `"none"` speaks of.

    >>> version_range("0-4"), version_range("none")
    (range(0, 5), range(0, 0))
    """
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Field:
    """One declared field. `annotation` is what the class statement says after the colon."""

    __slots__ = ("annotation", "default", "flexible", "ignorable", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        default: object = MISSING,
        versions: range = version_range("0+"),
        nullable: range | None = None,
        tag: int | None = None,
        *,
        ignorable: bool = False,
        flexible: bool = True,
    ) -> None:
        self.name = ""
        self.annotation: object = None
        self.default = default
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.flexible = flexible

    def __repr__(self) -> str:
        return f"Field({self.name})"


def field(
    *,
    default: object = MISSING,
    since: int = 0,
    until: int = VERSION_MAX,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """Says about a field what its annotation cannot.

    `since` and `until` are the first and last version that carries it. `nullable` narrows the versions in
    which `X | None` may be null. `tag` makes it a tagged field; a tagged struct that is absent is None, or
    a new one with all its defaults if `default` is its class.
    Encoding a version without the field raises when its value is not the default, unless it is `ignorable`.
    `flexible=False` keeps the old length prefix in a flexible version.
    """
    return Field(
        default,
        range(since, until + 1),
        None if nullable is None else version_range(nullable),
        tag,
        ignorable=ignorable,
        flexible=flexible,
    )


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _Declaration(type):
    """Turns the annotations of a class statement into slots and `__fields__`."""

    __fields__: tuple[Field, ...]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **about: Any
    ) -> _Declaration:
        if namespace.get("__abstract__"):
            return super().__new__(mcs, name, bases, namespace)
        fields = []
        for field_name, annotation in namespace.get("__annotations__", {}).items():
            given = namespace.pop(field_name, MISSING)
            declared = given if isinstance(given, Field) else Field(given)
            declared.name = field_name
            declared.annotation = annotation
            fields.append(declared)
        namespace["__slots__"] = (*(declared.name for declared in fields), "__unknown_tags__")
        namespace["__fields__"] = tuple(fields)
        namespace["__init__"] = _construct_first
        cls = super().__new__(mcs, name, bases, namespace)
        cls.__declare__(**about)  # type: ignore[attr-defined]
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_about: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=_Declaration):
    """A struct inside a message. It has the versions of the message it stands in."""

    __abstract__: ClassVar[bool] = True
    __slots__ = ()
    __fields__: ClassVar[tuple[Field, ...]]
    __hash__: ClassVar[None]  # type: ignore[assignment]

    if TYPE_CHECKING:  # in truth a slot of every subclass, and no field of the constructor

        @property
        def __unknown_tags__(self) -> dict[int, bytes] | None:
            """Tagged fields that this code does not know, by tag: they survive a round trip."""

        @__unknown_tags__.setter
        def __unknown_tags__(self, tags: dict[int, bytes] | None) -> None: ...

    @classmethod
    def __declare__(cls) -> None:
        """Receives the keyword arguments of the class statement."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = _values_of(type(self))
        return bool(values(self) == values(other))

    def __repr__(self) -> str:
        shown = [f"{declared.name}={getattr(self, declared.name)!r}" for declared in self.__fields__]
        if self.__unknown_tags__:
            shown.append(f"__unknown_tags__={self.__unknown_tags__!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


class Message(Struct):
    """A struct that stands by itself, and so says which versions there are and which are flexible."""

    __abstract__: ClassVar[bool] = True
    __slots__ = ()
    __versions__: ClassVar[range]
    __flexible__: ClassVar[range]

    @classmethod
    def __declare__(cls, *, versions: str, flexible: str) -> None:  # type: ignore[override]
        cls.__versions__ = version_range(versions)
        cls.__flexible__ = version_range(flexible)


class Request(Message):
    """What a client, a broker or a controller asks.

    `served` are the versions that the pinned Apache release answers, where they differ from those that we
    can read and write: it has dropped old ones, and keeps unfinished ones to itself. `of_nodes` is for those
    that only nodes send, for many partitions at once: they may take more memory.
    """

    __abstract__: ClassVar[bool] = True
    __slots__ = ()
    __key__: ClassVar[int]
    __served__: ClassVar[range]
    __listeners__: ClassVar[tuple[str, ...]]
    __of_nodes__: ClassVar[bool]

    @classmethod
    def __declare__(  # type: ignore[override]
        cls,
        *,
        key: int,
        versions: str,
        flexible: str,
        listeners: Listener = "",
        served: str | None = None,
        of_nodes: bool = False,
    ) -> None:
        super().__declare__(versions=versions, flexible=flexible)
        cls.__key__ = key
        cls.__served__ = version_range(served or versions)
        cls.__listeners__ = tuple(listeners.split())
        cls.__of_nodes__ = of_nodes


class Response(Message):
    """What is answered to the request of the same key."""

    __abstract__: ClassVar[bool] = True
    __slots__ = ()
    __key__: ClassVar[int]

    @classmethod
    def __declare__(cls, *, key: int, versions: str, flexible: str) -> None:  # type: ignore[override]
        super().__declare__(versions=versions, flexible=flexible)
        cls.__key__ = key


class Record(Message):
    """An entry of a log that is replicated state, or its key: `key` says which kind of entry."""

    __abstract__: ClassVar[bool] = True
    __slots__ = ()
    __key__: ClassVar[int]

    @classmethod
    def __declare__(cls, *, key: int, versions: str, flexible: str) -> None:  # type: ignore[override]
        super().__declare__(versions=versions, flexible=flexible)
        cls.__key__ = key


_values: dict[type, Callable[[object], Any]] = {}


def _values_of(cls: type[Struct]) -> Callable[[object], Any]:
    getter = _values.get(cls)
    if getter is None:
        names = [declared.name for declared in cls.__fields__]
        getter = _values[cls] = attrgetter(*names, "__unknown_tags__")
    return getter


def _construct_first(self: Struct, **values: Any) -> None:
    """The constructor of a class that has not been instantiated yet: writes the real one."""
    write_constructor(type(self))
    type(self).__init__(self, **values)


def write_constructor(cls: type[Struct]) -> None:
    """Writes the real constructor of a class, if that has not been done."""
    if cls.__init__ is _construct_first:
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]


def _constructor(cls: type[Struct]) -> Callable[..., None]:
    names: dict[str, object] = {}
    parameters, body = [], []
    for declared in cls.__fields__:
        name, default = declared.name, declared.default
        if default is MISSING:
            parameters.append(name)
            body.append(f"self.{name} = {name}")
            continue
        parameters.append(f"{name}=default_{name}")
        # Messages are mutable, so a list or a struct as a default is a new one each time.
        is_fresh = default == () or isinstance(default, type)
        names[f"default_{name}"] = list if default == () else default
        body.append(
            f"self.{name} = default_{name}() if {name} is default_{name} else {name}"
            if is_fresh
            else f"self.{name} = {name}"
        )
    body.append("self.__unknown_tags__ = None")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n    " + "\n    ".join(body)
    exec(compile(source, f"<constructor of {cls.__qualname__}>", "exec"), names)
    constructor: Callable[..., None] = names["__init__"]  # type: ignore[assignment]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor
