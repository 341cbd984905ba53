"""Names of who trains: peers, the sizes of DDP's buckets, and training without communication."""

import re

TORCH_DDP = "torch DDP (gloo)"
PEERS = {"ddp": TORCH_DDP, "ddp_alone": TORCH_DDP, "ddp_bluefog": "torch DDP (bluefog)",
         "decent_dp": "Decent-DP (gloo)"}
BACKENDS = {"ddp_bluefog": "bluefog"}
"""The backends of torch.distributed, by peer; gloo elsewhere."""
PLAIN = "none"
"""A loop of torch's, each rank for itself."""
WRAPPED = "none_wrapped"
"""The same with this project's optimizer around torch's, which communicates nothing."""
DDP_ALONE = "ddp_alone"
WITHOUT_COMMUNICATION = (PLAIN, WRAPPED, DDP_ALONE)
TORCHS_OWN = "default"
"""Buckets as torch has them where a program says nothing: a small first one, then 25 MiB. A program
that says 25 has no small one."""
DDP_BUCKETS = (TORCHS_OWN, "1", "4", "25")


def ddp_of(buckets):
    """The name of DDP over gloo with buckets of a size."""
    return "ddp" if buckets == TORCHS_OWN else f"ddp_{buckets}_mib"


def bucket_mib_of(algorithm):
    """The size of DDP's buckets that its name says; None where torch chooses."""
    found = re.fullmatch(r"ddp_(\d+)_mib", algorithm)
    return int(found[1]) if found else None


def is_ddp(algorithm):
    """DDP over gloo, with buckets of any size."""
    return algorithm == "ddp" or bucket_mib_of(algorithm) is not None


def with_all_buckets(algorithms, sizes):
    """The names with DDP over gloo once for each size of its buckets."""
    return [each for name in algorithms
            for each in (map(ddp_of, sizes) if name == "ddp" else [name])]


def backend_of(algorithm):
    return BACKENDS.get(algorithm, "gloo")


def peer_of(algorithm):
    return PEERS.get("ddp" if is_ddp(algorithm) else algorithm, "bluefog_cpp")


def is_peer(algorithm):
    return is_ddp(algorithm) or algorithm in PEERS


def fastest_ddp(records):
    """The record of DDP over gloo with the buckets that it is fastest with; None without any."""
    return max((record for record in records if is_ddp(record["algorithm"])),
               key=lambda record: record["img_per_sec"], default=None)
