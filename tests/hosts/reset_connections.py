"""reset_connections.py PID PORT: ends the TCP connections that a process has with other hosts by a
reset (RST), as a router or a firewall may, those with PORT aside. Prints how many."""

import contextlib
import ctypes
import os
import socket
import struct
import sys

PIDFD_GETFD = 438
AF_UNSPEC = struct.pack("H14x", 0)
INTERNET = (socket.AF_INET, socket.AF_INET6)


def connections(pid):
    """Duplicates of the process's sockets that are connected to another host."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            number = libc.syscall(PIDFD_GETFD, process, int(name), 0)
            if number < 0:
                sys.exit(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            one = socket.socket(fileno=number)
            if one.family in INTERNET and one.getpeername()[0] != one.getsockname()[0]:
                yield one


def main():
    pid, port = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    count = 0
    for one in connections(pid):
        if port not in (one.getpeername()[1], one.getsockname()[1]):
            # To connect to nothing drops the connection, and tells the other end by a reset.
            count += libc.connect(one.fileno(), AF_UNSPEC, len(AF_UNSPEC)) == 0
    print(count)


if __name__ == "__main__":
    main()
