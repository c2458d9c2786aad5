"""Every store that there is keeps the contract of stores."""

import pytest
from changeling_aggregator.testing import Opener, StoreContract

from .stores import PLACES


class TestStores(StoreContract):
    """Each kind of store."""

    @pytest.fixture(params=PLACES)
    def open_store(self, request: pytest.FixtureRequest) -> Opener:
        return PLACES[request.param](request).open
