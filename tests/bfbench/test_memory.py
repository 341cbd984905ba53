"""Memory of training, without what was there before it."""

import subprocess
import sys

PROGRAM = """
from bfbench.memory import Growth
held = bytearray(40 << 20)
freed = bytearray(200 << 20)
del freed
growth = Growth()
assert growth.grown_mib() < 15, growth.grown_mib()
more = bytearray(60 << 20)
del more
assert 55 < growth.grown_mib() < 80, growth.grown_mib()
assert growth.peak_mib() > 240
"""


def test_only_what_came_later_has_grown():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
