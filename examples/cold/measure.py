#!/usr/bin/env python3
"""How long reads of what is in memory take while others read what is on disk only: measure.py PROGRAM [KEYS] [--drop-caches]

Starts one node with a quarter of the memory that its data takes, in a folder that goes afterwards, and fills it with values of 300 bytes. One connection reads the
first thousand keys, one request at a time; others read all others at random. --drop-caches empties the system's page cache before each measurement (as root), so that the disk is read."""
import argparse
import multiprocessing
import os
import random
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from one_node import Node  # noqa: E402

HOT = 1000
VALUE = b"x" * 300
PIPELINE = 500
# What a key takes in memory, about, in bytes; and of the budget, what is for chains.
KEY_BYTES, FOR_CHAINS = 400, 3 / 8

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("keys", type=int, nargs="?", default=400_000)
parser.add_argument("--drop-caches", action="store_true")
options = parser.parse_args()


def connect():
    connection = node.connect()
    return connection, connection.makefile("rb", 1 << 16)


def request(*arguments):
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in arguments)


def get(connection, replies, keys):
    """The keys' values are as they were written, or this ends."""
    connection.sendall(b"".join(request(b"GET", b"key%d" % key) for key in keys))
    for key in keys:
        length = replies.readline()
        assert length == b"$300\r\n", (key, length)
        assert replies.read(302)[:300] == VALUE, key


def fill():
    connection, replies = connect()
    for start in range(0, options.keys, PIPELINE):
        some = range(start, min(start + PIPELINE, options.keys))
        while some:
            connection.sendall(b"".join(request(b"SET", b"key%d" % key, VALUE) for key in some))
            some = [key for key in some if replies.readline() != b"+OK\r\n"]
            time.sleep(0.1 if some else 0)


def read_cold(pipeline, stop, count, seed):
    source = random.Random(seed)
    connection, replies = connect()
    while not stop.value:
        get(connection, replies, [source.randrange(HOT, options.keys) for _ in range(pipeline)])
        with count.get_lock():
            count.value += pipeline


def read_hot(seconds):
    connection, replies = connect()
    took, until = [], time.time() + seconds
    while time.time() < until:
        began = time.perf_counter()
        get(connection, replies, [random.randrange(HOT)])
        took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    return [len(took) / seconds] + [took[int(len(took) * share)] for share in (0.5, 0.99, 0.999)]


def drop_caches():
    if options.drop_caches:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")


def measure():
    fill()
    # What was written leaves memory, and the start of it is asked for again.
    time.sleep(10)
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{node.admin}/metrics").read().decode()
    cold = sum(float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("rheostat_cold_keys"))
    print(f"{cold:.0f} of {options.keys} keys are on disk only")
    read_hot(1)
    print("| others | hot reads a second | half within | 99 % within | 99.9 % within | cold reads a second |\n|---|---|---|---|---|---|")
    for clients, pipeline in ((0, 1), (1, 1), (1, 16), (4, 16)):
        drop_caches()
        # Who reads has the node from here; newer releases of Python would begin anew otherwise.
        fork = multiprocessing.get_context("fork")
        stop, count = fork.Value("b", 0), fork.Value("q", 0)
        others = [fork.Process(target=read_cold, args=(pipeline, stop, count, seed)) for seed in range(clients)]
        for other in others:
            other.start()
        before = count.value
        rate, *took = read_hot(6)
        read = (count.value - before) / 6
        stop.value = 1
        for other in others:
            other.join()
            assert other.exitcode == 0, other.exitcode
        what = f"{clients} × pipeline {pipeline}" if clients else "none"
        print(f"| {what} | {rate:.0f} | " + " | ".join(f"{each:.0f} us" for each in took) + f" | {read:.0f} |")


with Node(options.program) as node:
    node.start("partitions = 4\nshards = 1", f"[limits]\nmemory_bytes = {int(options.keys * KEY_BYTES / 4 / FOR_CHAINS)}")
    measure()
