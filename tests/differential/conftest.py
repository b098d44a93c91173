import os

import far_abi
import libst_abi
import pytest

FAR = "LIBST_ANSWERS" in os.environ  # libst on another machine


def pytest_report_header() -> str:
    return f"libst: {far_abi.COMMAND if FAR else libst_abi.LIBRARY}"


@pytest.fixture(scope="session")
def libst():
    """The library under test. Its absence is a failure, never a skip: without it nothing here is compared."""
    if FAR:
        with far_abi.running():
            yield far_abi
        return
    if not libst_abi.LIBRARY.exists():
        pytest.fail(f"{libst_abi.LIBRARY} is missing: build it, or set LIBST_LIBRARY")
    yield libst_abi
