"""Pods that share a store in PostgreSQL, attacked."""

import threading
import time

import pytest
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client import Recorded
from changeling_client.testing.store_contract import Pods


@pytest.fixture(scope="module")
def postgresql():
    with PostgreSQL() as running:
        yield running


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_who_left_while_another_pod_waited_does_not_come_back(postgresql, level):
    postgresql_options = postgresql.new()
    pods = Pods(database=postgresql_options)
    schema = pods.options["database"].rpartition("%3D")[2]
    pods.options["database"] += " -c default_transaction_isolation=".replace(" ", "%20").replace("=", "%3D") + level.replace(" ", "%5C%20")
    with pods.client() as one, pods.client() as other:
        mine = pods.join(one, entries=2)
        theirs = pods.join(other, entries=2)
        mine.record("tea", entry=1)
        told = []

        def record():
            try:
                told.append(theirs.record("coffee", entry=1))
            except Exception as e:
                told.append(e)
        with one._device.store.transaction() as db:
            from changeling_client import entries
            waiting = threading.Thread(target=record)
            waiting.start()
            time.sleep(0.5)
            entries.leave(db, pods.survey.id, 1)
        waiting.join()
        print(told, postgresql.sql(f"SELECT survey, number FROM {schema}.entries"), postgresql.sql(f"SELECT * FROM {schema}.departed"))
        with other._device.store.transaction() as db:
            assert entries.numbers(db, pods.survey.id) == [0]
