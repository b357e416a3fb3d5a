"""A DEALER of the real libzmq, for interop_test.go.

usage: dealer.py MODE ADDRESS; prints "ok" or dies with what was wrong.
"""

import sys
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

PATIENCE = 20_000  # milliseconds


def connect(address, **options):
    s = zmq.Context.instance().socket(zmq.DEALER)
    s.setsockopt(zmq.LINGER, 0)
    s.setsockopt(zmq.RCVTIMEO, PATIENCE)
    s.setsockopt(zmq.SNDTIMEO, PATIENCE)
    s.setsockopt(zmq.SNDHWM, 0)
    s.setsockopt(zmq.RCVHWM, 0)
    s.setsockopt(zmq.IPV6, 1)
    for name, value in options.items():
        s.setsockopt(getattr(zmq, name), value)
    s.connect(address)
    return s


def expect(got, want):
    if got != want:
        sys.exit(f"got {got!r:.200}, want {want!r:.200}")


def echo(address):
    """Many messages of every shape; each is answered by ["", its frames joined]."""
    sizes = [0, 1, 254, 255, 256, 257, 4095, 4096, 65535, 65536, 300_000]
    messages = [[b"%d" % i * (n // len(b"%d" % i))] for i, n in enumerate(sizes)]
    messages += [[b"", b"x"], [b"a", b"", b"c"], [b"", b""], [b"y" * 300, b"z" * 70_000, b""]]
    messages += [[b"%d" % i] for i in range(5000)]
    for identity in (b"", b"rank-3", b"i" * 255):
        s = connect(address, **({"IDENTITY": identity} if identity else {}))
        s.send(b"who")
        expect(s.recv_multipart(), [b"", identity])
        for m in messages:
            s.send_multipart(m)
        for m in messages:
            expect(s.recv_multipart(), [b"", b"".join(m)])
        s.close()


def challenge(address):
    """The listener's READY has a property of its own, which messages of the connection carry."""
    s = connect(address)
    s.send(b"challenge")
    frame = s.recv(copy=False)
    expect(frame.bytes.decode(), frame.get("X-Test-Challenge"))


def heartbeat(address):
    """PINGs must be answered: libzmq would else reconnect."""
    s = connect(address, HEARTBEAT_IVL=20, HEARTBEAT_TIMEOUT=200, HEARTBEAT_TTL=5000)
    monitor = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    s.send(b"x")
    expect(s.recv_multipart(), [b"", b"x"])
    if monitor.poll(1000):
        sys.exit(f"lost the connection: {recv_monitor_message(monitor)}")
    s.send(b"y")
    expect(s.recv_multipart(), [b"", b"y"])


def reconnect(address):
    """libzmq reconnects by itself; the test closes the listener after "first"."""
    s = connect(address, RECONNECT_IVL=10, RCVTIMEO=100)
    s.send(b"first")
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        try:
            if s.recv_multipart() == [b"", b"second"]:
                return
        except zmq.Again:
            s.send(b"second")
    sys.exit("not reconnected")


def silent(address):
    """Asks for much and never reads."""
    s = connect(address, RCVHWM=1, RCVBUF=4096)
    s.send(b"flood")
    print("sent", flush=True)
    sys.stdin.read()


def greedy(address):
    """Sends a frame over the limit and sees the connection end."""
    s = connect(address)
    monitor = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    s.send(b"x" * 2_000_000)
    if not monitor.poll(PATIENCE):
        sys.exit("still connected")


{f.__name__: f for f in (echo, challenge, heartbeat, reconnect, silent, greedy)}[sys.argv[1]](sys.argv[2])
print("ok", flush=True)
