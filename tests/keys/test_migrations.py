"""A journal of the first version becomes one of the present version."""

import contextlib
from dataclasses import replace
from pathlib import Path

from reticent.storage.databases import migrate, open_database
from reticent_keys import SqlJournal
from reticent_keys.sql_schema import JOURNAL

FIRST = replace(JOURNAL, schema=(Path(__file__).parent / "first_schema.sql").read_text(), migrations=())
"""The format of the first version."""
COLUMNS = """
SELECT t.type, t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk
FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c WHERE t.type IN ('table', 'view')
"""
INDEXES = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'"


def shape(path: Path) -> set[tuple[object, ...]]:
    """The columns of all tables and views, and the indexes."""
    with contextlib.closing(SqlJournal(path)) as journal, journal.database.reading() as run:
        return {*run(COLUMNS).fetchall(), *run(INDEXES).fetchall()}


def test_a_journal_of_the_first_version_becomes_as_a_new_one(tmp_path: Path) -> None:
    """A change of the schema needs a migration."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with contextlib.closing(open_database(old, FIRST)) as database, database.transaction() as run:
        run("INSERT INTO server (identity) VALUES (?)", (b"identity",))
    migrate(old, JOURNAL)
    with contextlib.closing(SqlJournal(old)) as journal:
        assert journal.owner() == b"identity"
    assert shape(old) == shape(new)
