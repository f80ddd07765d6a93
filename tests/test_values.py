"""Our `dataclass` is the standard library's, as far as anybody can tell who uses the classes."""

import copy
import dataclasses
import pickle
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import pytest

from quorate.values import compile_constructors, dataclass

Decorator = Any


def declared(decorator: Decorator) -> dict[str, type]:
    """The same classes, by either decorator."""

    @decorator(frozen=True, slots=True)
    class Frozen:
        x: int
        y: str = "why"

    @decorator(frozen=True, slots=True)
    class Wider(Frozen):
        z: tuple[int, ...] = ()

    @decorator(frozen=True, slots=True, kw_only=True)
    class Named:
        """It has a text."""

        kind: ClassVar[str] = "named"
        x: int
        y: list[int] = field(default_factory=list)

    @decorator(frozen=True, slots=True)
    class One:
        x: Any

    @decorator(frozen=True, slots=True)
    class Empty:
        pass

    @decorator(slots=True)
    class Mutable:
        x: int
        y: dict[str, int] = field(default_factory=dict)
        z: int = field(default=3, init=False)

    @decorator(slots=True, eq=False)
    class Itself:
        x: int = 1

    @decorator(frozen=True, slots=True, repr=False)
    class Secret:
        x: int = 1

    @decorator
    class Plain:
        x: int = 1

    @decorator(frozen=True)
    class Checked:
        x: int = 1
        y: int = field(default=2, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("too low")

    @decorator(frozen=True, slots=True)
    class Own:  # noqa: PLW1641
        x: int = 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __repr__(self) -> str:
            return "own"

    @decorator(frozen=True, slots=True)
    class OwnHash:
        x: int = 1

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True, slots=True, order=True)
    class Ordered:
        x: int = 1

    return {name: one for name, one in locals().items() if isinstance(one, type)}


OURS, THEIRS = declared(dataclass), declared(dataclasses.dataclass)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "two"), {}),
    ((1, 2, 3, 4), {}),
    ((), {"x": 1}),
    ((), {"x": 1, "y": [2]}),
    ((), {"x": -1}),
    ((1,), {"x": 1}),
    ((), {"nothing": 1}),
]


def outcome(do: Any) -> Any:
    """What comes of it, or how it fails."""
    try:
        return do()
    except Exception as error:
        return type(error).__name__, str(error)


def observed(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Everything that one can see of values that are made like this."""
    try:
        one, two = cls(*args, **kwargs), cls(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    again = copy.copy(one)
    return {
        "repr": repr(one) if "object at" not in repr(one) else "plain",
        "equal": (one == two, one != two, one == 1, one == cls),
        "hash": outcome(lambda: hash(one) == hash(two)),
        "values": outcome(lambda: dataclasses.astuple(one)),
        "dict": outcome(lambda: dataclasses.asdict(one)),
        "replaced": outcome(lambda: dataclasses.astuple(dataclasses.replace(one, x=9))),
        "copied": [getattr(again, each.name) for each in dataclasses.fields(one)],
        "assigned": [outcome(partial(setattr, two, each.name, 3)) for each in dataclasses.fields(one)],
        "deleted": [outcome(partial(delattr, two, each.name)) for each in dataclasses.fields(one)],
        "stranger": outcome(lambda: setattr(two, "stranger", 3)) is None,  # how theirs fails is a mistake
        "has a dict": hasattr(one, "__dict__"),
        "ordered": outcome(lambda: one < cls(*args, **kwargs)),
    }


@pytest.mark.parametrize("name", OURS)
def test_values_are_those_of_the_standard_library(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    for args, kwargs in CALLS:
        assert observed(ours, args, kwargs) == observed(theirs, args, kwargs), (args, kwargs)


@pytest.mark.parametrize("name", OURS)
def test_classes_are_those_of_the_standard_library(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]

    def seen(cls: Any) -> Any:
        fields = [
            (one.name, one.type, one.default, one.init, one.compare, one.kw_only)
            for one in dataclasses.fields(cls)
        ]
        return fields, cls.__match_args__, getattr(cls, "__slots__", None), cls.__hash__ is None

    assert seen(ours) == seen(theirs)


@dataclass(frozen=True, slots=True)
class Sent:
    x: int
    y: Any = None


def test_a_value_can_be_sent_and_matched_and_may_contain_itself() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, Sent(2)))) == Sent(1, Sent(2))
    assert copy.deepcopy(Sent(1, [2])) == Sent(1, [2])
    match Sent(1, 2):
        case Sent(x, y):
            assert (x, y) == (1, 2)
    loop: list[Any] = []
    loop.append(Sent(1, loop))
    assert repr(loop[0]) == "Sent(x=1, y=[...])"


def test_a_value_that_is_no_number_is_equal_to_itself() -> None:
    """As tuples are, also for one field."""
    nan = float("nan")
    assert OURS["One"](nan) == OURS["One"](nan)


def test_a_subclass_without_decorator_has_the_same_init() -> None:
    class More(Sent):
        extra = 1

    more = More(1, 2)
    more.note = "of its own"  # type: ignore[attr-defined]
    assert (more.x, more.y) == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        more.x = 2  # type: ignore[misc]


def test_constructors_can_be_compiled_before_they_are_called() -> None:
    @dataclass(frozen=True, slots=True)
    class Early:
        x: int

    before = Early.__init__
    compile_constructors()
    assert Early.__init__ is not before
    assert Early(1).x == 1
    assert before is not Early.__init__
    before(other := Early(2), 3)  # whoever has kept it may call it
    assert other.x == 3
