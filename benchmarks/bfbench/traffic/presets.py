"""Choices that go together, by name; options that are given go before them."""

DEFAULTS: dict = {
    "task": "language", "ranks": 4, "hosts": 1, "rate": None, "more": 1.0, "seeds": [1, 2, 3],
    "algorithms": "ddp,ddp_bf16,ddp_powersgd,post_local_sgd,decent_dp,gradient_allreduce,"
                  "adapt_then_combine,choco,diloco,gossip_diloco,gossip_diloco+int4",
    "compressions": ["default"], "topologies": ["one_peer"], "shards": ["iid"], "local_steps": 20,
    "steps": 200, "warmup_steps": 20, "report_every": 20, "batch_size": 8, "length": 64,
    "width": 64, "layers": 2, "heads": 4,
}
DEFAULT_RATE_MBIT = 1000.0
"""Between several hosts."""
OF_TASK = {
    "language": {"data": "/usr/share/common-licenses", "lr": 3e-3},
    "images": {"data": "/usr/share/datasets/fashion-mnist", "lr": 0.02},
}
PRESETS: dict[str, dict] = {
    "default": {},
    # A language model of 8 ranks that share no memory, over links of 100 Mbit/s.
    "slow-link": {
        "ranks": 8, "hosts": 8, "rate": 100.0, "more": 2.0, "seeds": [1],
        "algorithms": "ddp,adapt_then_combine,choco+int4,gossip_diloco+int4",
        "topologies": ["one_peer"], "local_steps": 50, "steps": 300, "warmup_steps": 30,
        "report_every": 50, "batch_size": 4, "width": 192, "layers": 4,
    },
    # As published for models of billions of parameters (arXiv 2311.08105, 2506.10911, 2606.11081),
    # scaled to few processors.
    "outer-steps": {
        "algorithms": "ddp,local_sgd,diloco,noloco@default,gossip_diloco@default,"
                      "accelerated_gossip@ring",
        "local_steps": 30, "steps": 300, "warmup_steps": 30, "report_every": 30,
    },
}


def fill(args):
    """Gives the options that were left out what the preset and the task have."""
    chosen = {**DEFAULTS, **PRESETS[args.preset]}
    if args.hosts is None and args.ranks is not None and chosen["ranks"] == chosen["hosts"]:
        chosen["hosts"] = args.ranks  # a rank on each
    if args.hosts == 1:
        chosen["rate"] = None
    task = args.task or chosen["task"]
    for name, value in {**chosen, **OF_TASK[task]}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.hosts > 1 and args.rate is None:
        args.rate = DEFAULT_RATE_MBIT
    return args
