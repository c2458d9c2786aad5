"""A store goes from one schema version to another and back, whichever database holds it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from changeling_aggregator.errors import StoreError
from changeling_aggregator.store import Store
from changeling_aggregator.store.log import append, open_stream, unread
from changeling_aggregator.store.migrating import MIGRATIONS, Move, found_version, migrate
from changeling_aggregator.store.opened import connected
from changeling_aggregator.store.schema import VERSION, metadata
from changeling_commands.__main__ import main as run
from sqlalchemy import inspect, text

from ..contracts.stores import PLACES, Place
from ..postgres import PostgreSQL

NEXT = '''
"""A version that is to come: one more column, and one that has another name."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{version}"


def upgrade() -> None:
    op.add_column("surveys", sa.Column("colour", sa.String, server_default="blue", nullable=False))
    with op.batch_alter_table("log") as log:
        log.alter_column("envelope", new_column_name="sealed")


def downgrade() -> None:
    with op.batch_alter_table("log") as log:
        log.alter_column("sealed", new_column_name="envelope")
    with op.batch_alter_table("surveys") as surveys:
        surveys.drop_column("colour")
'''
BROKEN = '    op.add_column("no such table", sa.Column("x", sa.String))\n'


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Where a store may lie; nothing is there yet."""
    return PLACES[request.param](request)


@pytest.fixture
def future(tmp_path: Path) -> Callable[[str], Path]:
    """Makes the folder of migrations of a program to come."""

    def make(more: str = "") -> Path:
        folder = tmp_path / "100% to come"
        shutil.copytree(MIGRATIONS, folder, dirs_exist_ok=True)
        (folder / "versions" / "version_9999.py").write_text(
            NEXT.format(version=VERSION).replace("\n\n\ndef downgrade", f"\n{more}\n\ndef downgrade")
        )
        return folder

    return make


def move(place: Place, to: str = VERSION, migrations: Path = MIGRATIONS) -> Move:
    with connected(place.name) as database:
        return migrate(database, to, migrations)


def differences(place: Place) -> list[object]:
    with connected(place.name) as database, database.engine.connect() as connection:
        has_identities = connection.dialect.name == "postgresql"  # which count as defaults
        context = MigrationContext.configure(connection, opts={"compare_server_default": has_identities})
        return list(compare_metadata(context, metadata))


def columns(place: Place) -> dict[str, list[tuple[object, ...]]]:
    """Every table as the database itself describes it."""
    with connected(place.name) as database:
        shown = inspect(database.engine)
        return {
            name: [(column["name"], str(column["type"]), column["nullable"]) for column in shown.get_columns(name)]
            + [tuple(shown.get_pk_constraint(name)["constrained_columns"])]
            for name in sorted(shown.get_table_names())
        }


def test_the_migrations_make_what_the_program_describes(place: Place, request: pytest.FixtureRequest) -> None:
    """From nothing on; and a new store, which is made without them, is the same, column for column."""
    with connected(place.name) as database:
        assert found_version(database) is None
    assert move(place) == Move(None, VERSION)
    assert differences(place) == []
    by_migrations = columns(place)
    Store.open(place.name).close()
    other = PLACES[request.node.callspec.params["place"]](request)
    if other == place:
        Path(place.name).unlink()
    Store.open(other.name).close()
    assert columns(other) == by_migrations


def test_postgresql_tries_to_compress_no_ciphertext(postgresql: PostgreSQL) -> None:
    """However the tables were made: it would be in vain, and a third of the time that appending takes."""
    question = "SELECT attstorage FROM pg_attribute WHERE (attrelid, attname) IN (('log'::regclass, 'envelope'), "
    for made in (lambda url: Store.open(url).close(), lambda url: move(Place(url))):
        url = postgresql.new()
        made(url)
        with connected(url) as database, database.engine.connect() as connection:
            kept = connection.exec_driver_sql(question + "('runs'::regclass, 'ids'))").scalars().all()
        assert kept == ["e", "e"]


def test_a_store_goes_up_and_down_with_all_that_is_in_it(place: Place, future: Callable[[str], Path]) -> None:
    """To a version to come and back: then it opens again, and holds what it held."""
    store = place.open()
    with store.writing() as connection:
        append(connection, open_stream(connection), [b"one", b"two"], 5)
    store.close()
    migrations = future("")
    assert move(place, "9999", migrations) == Move(VERSION, "9999")
    with connected(place.name) as database, database.engine.connect() as connection:
        assert connection.execute(text("SELECT sealed FROM log ORDER BY position")).scalars().all() == [b"one", b"two"]
    with pytest.raises(StoreError, match=f"version 9999, this program knows {VERSION}: .* store downgrade --to"):
        place.open()
    assert move(place, VERSION, migrations) == Move("9999", VERSION)
    store = place.open()
    with store.reading() as connection:
        assert [logged.body for logged in unread(connection, 9, 99)] == [b"one", b"two"]
    store.close()
    assert differences(place) == []


def test_a_migration_that_fails_leaves_the_store_as_it_was(place: Place, future: Callable[[str], Path]) -> None:
    """Though it had done half of its work: the next start finds the old version, whole."""
    place.open().close()
    before = columns(place)
    with pytest.raises(Exception, match="no such table"):
        move(place, "9999", future(BROKEN))
    assert columns(place) == before
    place.open().close()


def test_an_older_store_is_not_opened_but_upgraded(
    place: Place, future: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program to come says what to do, and changes nothing before it is told to."""
    place.open().close()
    before = columns(place)
    monkeypatch.setattr("changeling_aggregator.store.schema.VERSION", "9999")
    with pytest.raises(StoreError, match=f"version {VERSION}, this program needs 9999: .*`changeling store upgrade`"):
        place.open()
    assert columns(place) == before
    move(place, "9999", future(""))
    place.open().close()


def test_the_command_line_shows_and_changes_the_version(
    place: Place, future: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Makes a store, leaves one that is right, and refuses one from the future and a version that it does not know."""

    def store(*words: str) -> tuple[int, str]:
        code = run(["store", *words, "--store", place.name])
        done = capsys.readouterr()
        return code, done.out + done.err

    def after(code: int, *sentences: str) -> None:
        assert (code == outcome[0], [each for each in sentences if each not in outcome[1]]) == (True, []), outcome

    outcome = store("version")
    after(0, "no store yet", VERSION)
    outcome = store("upgrade")
    after(0, f"from schema version none to {VERSION}")
    outcome = store("upgrade")
    after(0, f"{VERSION} already")
    outcome = store("downgrade", "--to", "0000")
    after(1, "knows schema version", f"{VERSION}, not '0000'")
    move(place, "9999", future(""))
    outcome = store("version")
    after(0, "has schema version 9999", f"needs {VERSION}")
    outcome = store("upgrade")
    after(1, "schema version 9999", "store downgrade")
