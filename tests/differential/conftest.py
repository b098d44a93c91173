import libst_abi
import pytest


def pytest_report_header() -> str:
    return f"libst: {libst_abi.LIBRARY}"


@pytest.fixture(scope="session")
def libst():
    """The library under test. Its absence is a failure, never a skip: without it nothing here is compared."""
    if not libst_abi.LIBRARY.exists():
        pytest.fail(f"{libst_abi.LIBRARY} is missing: build it, or set LIBST_LIBRARY")
    return libst_abi
