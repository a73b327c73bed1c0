#!/usr/bin/env python3
"""How long partitions take to be split: measure.py PROGRAM [KEYS] [PARTITIONS]

Starts one node with two partitions, in a folder that goes afterwards, writes keys with values of 100 bytes, and stops it; then starts it with PARTITIONS (default 16) and says how long it takes until it serves,
beside the start before, and looks at each key."""
import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time

VALUE = b"x" * 100
PIPELINE = 1000

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("keys", type=int, nargs="?", default=1_000_000)
parser.add_argument("partitions", type=int, nargs="?", default=16)
options = parser.parse_args()

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    PORT = listener.getsockname()[1]

CONFIG = f"""
cluster = "splitting"
node = "a"
data_center = "here"
data_dir = "data"
%s
[listen]
resp = "127.0.0.1:{PORT}"
[[keyspace]]
name = "default"
protocol = "causal"
"""


def start(folder, partitions):
    """The process, and how long it took until it answered, in seconds."""
    with open(os.path.join(folder, "node.toml"), "w") as file:
        file.write(CONFIG % partitions)
    began = time.time()
    log = open(os.path.join(folder, "log"), "w")
    process = subprocess.Popen([os.path.abspath(options.program), "serve", "--config", "node.toml"], cwd=folder, stdout=log, stderr=log)
    while process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", PORT), timeout=600) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return process, time.time() - began
        except ConnectionRefusedError:
            pass
        time.sleep(0.01)
    raise SystemExit(open(os.path.join(folder, "log")).read())


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def each(request, expected):
    """Sends a request for each key in pipelines and compares the answers."""
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        replies = connection.makefile("rb", 1 << 16)
        for first in range(0, options.keys, PIPELINE):
            keys = range(first, min(first + PIPELINE, options.keys))
            connection.sendall(b"".join(request(key) for key in keys))
            for key in keys:
                for line in expected:
                    found = replies.readline()
                    assert found == line, (key, found)


def megabytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names) >> 20


with tempfile.TemporaryDirectory() as folder:
    process, _ = start(folder, "partitions = 2")
    each(lambda key: b"SET key:%010d %s\r\n" % (key, VALUE), [b"+OK\r\n"])
    stop(process)
    process, before = start(folder, "partitions = 2")
    stop(process)
    size = megabytes(os.path.join(folder, "data"))
    process, took = start(folder, f"partitions = {options.partitions}\nfirst_partitions = 2")
    each(lambda key: b"GET key:%010d\r\n" % key, [b"$100\r\n", VALUE + b"\r\n"])
    stop(process)
    process, after = start(folder, f"partitions = {options.partitions}\nfirst_partitions = 2")
    stop(process)
    print(f"{options.keys} keys, {size} MB on disk: a start with 2 partitions {before:.2f} s; split into {options.partitions} {took:.2f} s; a start with them {after:.2f} s. Every key is there")
