def pytest_configure(config):
    config.addinivalue_line("markers", "long: a start much like another; with LEVEL=long alone")
