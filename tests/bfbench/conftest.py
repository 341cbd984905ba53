def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs several jobs; with LEVEL=long alone")
