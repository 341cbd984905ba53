def pytest_configure(config):
    config.addinivalue_line("markers", "long: much like another; with LEVEL=long alone")
