import os

import pytest

if "RHEOSTAT_SUITE" not in os.environ:
    raise pytest.UsageError("these tests need the cluster that clients/test.sh starts: clients/test.sh python")

from support import Async, Sync

APIS = {"sync": Sync(), "async": Async()}


@pytest.fixture(params=sorted(APIS))
def api(request: pytest.FixtureRequest) -> Sync:
    return APIS[request.param]
