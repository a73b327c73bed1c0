#!/usr/bin/env python3
"""How long partitions take to be split: measure.py PROGRAM [KEYS] [PARTITIONS] [--protocol causal] [--prepare]

Starts one node with two partitions, in a folder that goes afterwards, writes keys with values of 100 bytes, and stops it; then starts it with PARTITIONS (default 16), says how long it takes until it serves,
beside the start before, and how long nobody was served, prints what it logs of that, and looks at each key. With --prepare the node has the split prepared before it is stopped, and every hundredth key is written once more afterwards."""
import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from one_node import Node  # noqa: E402

VALUE = b"x" * 100
PIPELINE = 1000

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("keys", type=int, nargs="?", default=1_000_000)
parser.add_argument("partitions", type=int, nargs="?", default=16)
parser.add_argument("--protocol", default="causal")
parser.add_argument("--prepare", action="store_true")
options = parser.parse_args()


def each(node, request, expected, step=1):
    """Sends a request for each `step`th key in pipelines and compares the answers."""
    with node.connect() as connection:
        replies = connection.makefile("rb", 1 << 16)
        for first in range(0, options.keys, PIPELINE * step):
            keys = range(first, min(first + PIPELINE * step, options.keys), step)
            connection.sendall(b"".join(request(key) for key in keys))
            for key in keys:
                for line in expected:
                    found = replies.readline()
                    assert found == line, (key, found)


with Node(options.program, options.protocol) as node:
    node.start("partitions = 2")
    each(node, lambda key: b"SET key:%010d %s\r\n" % (key, VALUE), [b"+OK\r\n"])
    node.stop()
    before = node.start("partitions = 2")
    prepared = ""
    if options.prepare:
        began = time.time()
        subprocess.run([node.program, "ctl", "-a", f"127.0.0.1:{node.grpc}", "node", "prepare-split", "a", str(options.partitions)], check=True)
        prepared = f"prepared in {time.time() - began:.2f} s while it served, and "
        each(node, lambda key: b"SET key:%010d %s\r\n" % (key, VALUE), [b"+OK\r\n"], 100)
    began = time.time()
    node.stop()
    stopped = time.time() - began
    size = node.disk_mb()
    took = node.start(f"partitions = {options.partitions}\nfirst_partitions = 2")
    most = node.resident_mb()
    each(node, lambda key: b"GET key:%010d\r\n" % key, [b"$100\r\n", VALUE + b"\r\n"])
    node.stop()
    after = node.start(f"partitions = {options.partitions}\nfirst_partitions = 2")
    with open(node.path("log")) as log:
        print("".join(line for line in log if "splitting" in line), end="")
    print(
        f"{options.protocol}: {options.keys} keys, {size} MB on disk: a start with 2 partitions {before:.2f} s; {prepared}split into {options.partitions} {took:.2f} s ({most} MB resident then), nobody served for {stopped + took:.2f} s; "
        f"a start with them {after:.2f} s. Every key is there"
    )
