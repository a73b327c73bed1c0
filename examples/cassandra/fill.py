#!/usr/bin/env python3
"""More keys than fit into memory, written to a node over RESP and read back: fill.py KEYS BYTES [--port 6400] [--random SECONDS] [--skip-writes]

Every value is checked. --random then reads keys at random, one at a time on each of 8 connections, and tells rate and latency."""
import argparse
import random
import socket
import threading
import time

PIPELINE = 500

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("keys", type=int)
parser.add_argument("bytes", type=int)
parser.add_argument("--port", type=int, default=6400)
parser.add_argument("--random", type=float, default=0)
parser.add_argument("--skip-writes", action="store_true")
options = parser.parse_args()


def connect():
    connection = socket.create_connection(("127.0.0.1", options.port))
    return connection, connection.makefile("rb", 1 << 20)


def name(key):
    return b"key:%d" % key


def value(key):
    return b"%0*d" % (options.bytes, key)


def request(*arguments):
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in arguments)


def read(replies, key):
    replies.readline()
    line = replies.readline()
    assert line == value(key) + b"\r\n", (key, line[:100])


def all_keys(doing):
    connection, replies = connect()
    began = time.time()
    refused = 0
    for start in range(0, options.keys, PIPELINE):
        some = list(range(start, min(start + PIPELINE, options.keys)))
        while doing == "written" and some:
            connection.sendall(b"".join(request(b"SET", name(key), value(key)) for key in some))
            answers = [(key, replies.readline()) for key in some]
            # Memory is full, and what is in it is on its way to the disk, or to Cassandra.
            some = [key for key, line in answers if line.startswith(b"-BUSY")]
            assert all(line == b"+OK\r\n" or line.startswith(b"-BUSY") for _, line in answers), answers
            refused += len(some)
            time.sleep(0.1 if some else 0)
        if doing == "read":
            connection.sendall(b"".join(request(b"GET", name(key)) for key in some))
            for key in some:
                read(replies, key)
    took = time.time() - began
    again = f", {refused} times refused with BUSY and sent again" if refused else ""
    print(f"{options.keys} keys of {options.bytes} bytes {doing} in {took:.1f} s: {options.keys / took:.0f} a second{again}", flush=True)


def at_random(connections=8):
    end = time.time() + options.random
    took = [[] for _ in range(connections)]

    def one(number):
        draw = random.Random(number)
        connection, replies = connect()
        while time.time() < end:
            key = draw.randrange(options.keys)
            began = time.perf_counter()
            connection.sendall(request(b"GET", name(key)))
            read(replies, key)
            took[number].append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted(each for some in took for each in some)
    at = lambda share: every[min(int(len(every) * share), len(every) - 1)] * 1e3
    print(f"{len(every) / options.random:.0f} reads a second at random, half within {at(0.5):.2f} ms, 99 % within {at(0.99):.2f} ms", flush=True)


if not options.skip_writes:
    all_keys("written")
all_keys("read")
if options.random > 0:
    at_random()
