"""Records as measurements print them."""


def operation(peer="bluefog_cpp", op="allreduce", median=10.0, **others):
    return {"peer": peer, "op": op, "language": "C++", "ranks": 2, "hosts": 1, "device": "cpu",
            "dtype": "float32", "bytes": 1024, "median_us": median, "p95_us": 2 * median,
            "algbw_gbps": 1.0, "busbw_gbps": 1.0, "limit_ratio": 4.0, **others}


def training(algorithm="none", rate=100.0, **others):
    return {"peer": "bluefog_cpp", "algorithm": algorithm, "model": "cnn", "ranks": 2,
            "batch_size": 8, "image_size": 32, "parameters": 5, "img_per_sec": rate,
            "sec_per_iter": {"p50": 16 / rate, "p95": 20 / rate}, **others}


def on_hosts(algorithm, graph="", ranks=2, rate=10.0, **others):
    return {"peer": "bluefog_cpp", "algorithm": algorithm, "graph": graph, "model": "cnn",
            "hosts": ranks, "ranks": ranks, "batch_size": 8, "image_size": 32, "parameters": 5,
            "emulated": True, "simulated": False, "rate_mbit": 100.0, "img_per_sec": rate,
            "efficiency": 0.9, "sec_per_iter": {"p50": 8 / rate, "p95": 9 / rate}, **others}
