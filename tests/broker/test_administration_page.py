"""The page for operators says what the tables of keys say."""

from tools.list_configs import BEGIN, PAGE, tables


def test_the_tables_of_keys_are_those_of_the_code():
    _, mark, written = PAGE.read_text().partition(BEGIN)
    assert mark + written == tables(), "run tools/list_configs.py"
