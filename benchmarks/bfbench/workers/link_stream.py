"""The limit between hosts: one TCP stream from each rank to its counterpart on the next host."""

import fcntl
import socket
import struct
import threading

import torch
import torch.distributed as dist

from bfbench.hosts import INTERFACE

SIOCGIFADDR = 0x8915
CONNECT_SEC = 30


def address_of(interface):
    """The IPv4 address of a network interface of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR,
                            struct.pack("256s", interface.encode()))
    return socket.inet_ntoa(found[20:24])


class LinkStream:
    """A call that sends a buffer to the rank `hop` places on, and hears as much from the rank as
    many places before; collective."""

    def __init__(self, rank, size, hop, like, interface=INTERFACE):
        self.received = memoryview(bytearray(like.nbytes))
        with socket.create_server((address_of(interface), 0)) as server:
            server.settimeout(CONNECT_SEC)
            addresses = [None] * size
            dist.all_gather_object(addresses, server.getsockname())
            self.outgoing = socket.create_connection(addresses[(rank + hop) % size], CONNECT_SEC)
            self.incoming, _ = server.accept()
        for stream in (self.outgoing, self.incoming):
            stream.settimeout(None)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self, buffer):
        sender = threading.Thread(target=self.outgoing.sendall,
                                  args=(memoryview(buffer.view(torch.uint8).numpy()),))
        sender.start()
        place = 0
        while place < len(self.received):
            count = self.incoming.recv_into(self.received[place:])
            if count == 0:
                raise ConnectionError("the rank before closed its stream")
            place += count
        sender.join()

    def close(self):
        self.outgoing.close()
        self.incoming.close()
