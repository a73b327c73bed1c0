#!/usr/bin/env python3
"""Whether a node with little memory takes more data than fits: budget.py PROGRAM [BUDGET_MB] [DATA_MB] [SECONDS]

Starts one node with limits.memory_bytes = BUDGET_MB, in a folder that goes afterwards, and writes values of 1000 bytes in pipelines of 500. What is refused with BUSY is sent again after
50 ms. Says each two seconds how much is left, how often a write was refused, and what the process has resident; and in the end how long it took."""
import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from one_node import Node  # noqa: E402

VALUE = b"x" * 1000
PIPELINE = 500

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("budget_mb", type=int, nargs="?", default=128)
parser.add_argument("data_mb", type=int, nargs="?", default=400)
parser.add_argument("seconds", type=int, nargs="?", default=120)
options = parser.parse_args()

with Node(options.program) as node:
    node.start("partitions = 2", f"[limits]\nmemory_bytes = {options.budget_mb << 20}")
    connection = node.connect()
    replies = connection.makefile("rb", 1 << 16)
    left, refused, most, began, told = list(range(options.data_mb * 1000)), 0, 0, time.time(), time.time()
    while left and time.time() - began < options.seconds:
        some, left = left[:PIPELINE], left[PIPELINE:]
        connection.sendall(b"".join(b"SET key:%d %s\r\n" % (key, VALUE) for key in some))
        again = [key for key in some if not replies.readline().startswith(b"+OK")]
        refused += len(again)
        if again:
            time.sleep(0.05)
        left = again + left
        if time.time() - told > 2:
            told, now = time.time(), node.resident_mb()
            most = max(most, now)
            print(f"{told - began:5.1f} s: {len(left):7} left, {refused:7} refused, {now} MB resident", flush=True)
    words = "written" if not left else f"NOT written: {len(left)} keys are left"
    print(f"{options.data_mb} MB {words} in {time.time() - began:.1f} s, {refused} times refused, {most} MB resident at most")
