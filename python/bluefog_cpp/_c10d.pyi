from collections.abc import Sequence
from datetime import timedelta
from typing import Any

torch_version: str

def create(store: Any, rank: int, size: int, timeout: timedelta, name: str,
           global_ranks: Sequence[int]) -> Any: ...
def open_tcp_store(host: str, port: int, keeps_it: bool, timeout: timedelta) -> Any: ...
def run_exit_hooks() -> None: ...
