#!/usr/bin/env python3
"""Whether a node with little memory takes more data than fits: budget.py PROGRAM [BUDGET_MB] [DATA_MB] [SECONDS]

Starts one node with limits.memory_bytes = BUDGET_MB, in a folder that goes afterwards, and writes values of 1000 bytes in pipelines of 500. What is refused with BUSY is sent again after
50 ms. Says each two seconds how much is left, how often a write was refused, and what the process has resident; and in the end how long it took."""
import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time

VALUE = b"x" * 1000
PIPELINE = 500

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("budget_mb", type=int, nargs="?", default=128)
parser.add_argument("data_mb", type=int, nargs="?", default=400)
parser.add_argument("seconds", type=int, nargs="?", default=120)
options = parser.parse_args()

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    PORT = listener.getsockname()[1]

CONFIG = f"""
cluster = "budget"
node = "a"
data_center = "here"
partitions = 2
data_dir = "data"
[listen]
resp = "127.0.0.1:{PORT}"
[[keyspace]]
name = "default"
protocol = "causal"
[limits]
memory_bytes = {options.budget_mb << 20}
"""


def resident_mb(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) // 1024


def connect(process):
    until = time.time() + 30
    while time.time() < until and process.poll() is None:
        try:
            connection = socket.create_connection(("127.0.0.1", PORT))
            connection.sendall(b"PING\r\n")
            # While its data are opened a node answers something else, and ends the connection then.
            if connection.recv(64) == b"+PONG\r\n":
                return connection
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit("the node does not serve")


def fill(process):
    connection = connect(process)
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
            told, now = time.time(), resident_mb(process)
            most = max(most, now)
            print(f"{told - began:5.1f} s: {len(left):7} left, {refused:7} refused, {now} MB resident", flush=True)
    words = "written" if not left else f"NOT written: {len(left)} keys are left"
    print(f"{options.data_mb} MB {words} in {time.time() - began:.1f} s, {refused} times refused, {most} MB resident at most")


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "node.toml"), "w") as file:
        file.write(CONFIG)
    process = subprocess.Popen([os.path.abspath(options.program), "serve", "--config", "node.toml"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fill(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
