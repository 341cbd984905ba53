import pytest

from launching import clean_environment


@pytest.fixture
def environment():
    """The environment of programs that use the Python package."""
    pytest.importorskip("bluefog_cpp._core", reason="the Python package is not built",
                        exc_type=ImportError)
    return clean_environment()
