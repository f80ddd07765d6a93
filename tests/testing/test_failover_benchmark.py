"""What the benchmark of failovers shows: a table and a picture of what was measured."""

from xml.etree import ElementTree

from bench.failover import EVENTS, Measured, _ratio, picture, table

MODES = ("kraft", "zookeeper")
SIZES = (100, 10_000)
FOUND = [
    Measured(mode, size, event, noticed_s=3.0, led_s=size / 10_000 * (1 + 9 * (mode == "zookeeper")))
    for mode in MODES
    for size in SIZES
    for event in EVENTS
]


def test_a_row_for_every_event_and_size_with_both_modes():
    head, rule, *rows = table(FOUND, MODES, SIZES)
    assert head.count("|") == rule.count("|") == 6
    assert len(rows) == len(EVENTS) * len(SIZES)
    assert rows[1] == "| controller failover | 10,000 | 4.00 s (1.00 s) | 13.00 s (10.00 s) | 10.0 |"


def test_what_is_too_short_to_be_seen_is_not_divided_by():
    short = [Measured("kraft", 1, "broker failure", 3.0, 0.001), Measured("zookeeper", 1, "", 3.0, 0.2)]
    assert _ratio(short) == " >= 10.0 |"
    assert _ratio(short[:1] * 2) == " - |"


def test_one_mode_alone_is_compared_with_nothing():
    head, _, *rows = table([one for one in FOUND if one.mode == "kraft"], ("kraft",), SIZES)
    assert "ratio" not in head
    assert rows[0] == "| controller failover | 100 | 3.01 s (0.01 s) |"


def test_the_picture_has_a_line_for_every_mode_and_event():
    drawn = ElementTree.fromstring(picture(FOUND, MODES))
    space = {"svg": "http://www.w3.org/2000/svg"}
    lines = drawn.findall("svg:polyline", space)
    assert len(lines) == len(MODES) * len(EVENTS)
    assert all(len((line.get("points") or "").split()) == len(SIZES) for line in lines)
    texts = {one.text for one in drawn.findall("svg:text", space)}
    assert {"100", "10,000", "zookeeper, broker failure"} <= texts
    heights = [float(one.split(",")[1]) for line in lines for one in (line.get("points") or "").split()]
    assert all(0 < one < 460 for one in heights)
