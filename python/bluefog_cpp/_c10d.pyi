from collections.abc import Sequence
from datetime import timedelta
from typing import Any

torch_version: str

def create(store: Any, rank: int, size: int, timeout: timedelta, name: str,
           global_ranks: Sequence[int]) -> Any: ...
def run_exit_hooks() -> None: ...
