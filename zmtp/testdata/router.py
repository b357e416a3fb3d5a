"""A ROUTER of the real libzmq, for interop_test.go.

usage: router.py MODE; prints the port that it has bound and serves until stdin ends.
"""

import os
import sys
import threading

import zmq

s = zmq.Context.instance().socket(zmq.ROUTER)
s.setsockopt(zmq.LINGER, 0)
if sys.argv[1] == "stuck":
    s.setsockopt(zmq.RCVHWM, 1)
    s.setsockopt(zmq.RCVBUF, 4096)
if sys.argv[1] == "heartbeat":
    s.setsockopt(zmq.HEARTBEAT_IVL, 20)
    s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 200)
print(s.bind_to_random_port("tcp://127.0.0.1"), flush=True)


def until_stdin_ends():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=until_stdin_ends, daemon=True).start()
if sys.argv[1] == "stuck":
    threading.Event().wait()
while True:
    identity, *frames = s.recv_multipart()
    if frames == [b"get_meta_msg"]:
        s.send_multipart([identity, b"", b"metadata"])
        s.send_multipart([identity, b"", b"layers" * 50_000])
    elif frames == [b"identity"]:
        s.send_multipart([identity, b"", identity])
    else:
        s.send_multipart([identity, b"", b"".join(frames)])
