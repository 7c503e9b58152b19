"""Announces long garbage collections of CPython to the sidecar.

    import sidebeat_gc
    sidebeat_gc.install("/run/sidebeat/hook.sock")

Each collection of the oldest generation is announced at its begin, for at most `bound` seconds, and ended early at its end.
A sidecar that is away costs nothing: the service goes on without announcing.

    python3 sidebeat_gc.py /run/sidebeat/hook.sock      tries it once
"""

import gc
import socket


def say(path, line, timeout=0.2):
    """One line to the sidecar, and its answer; raises OSError where it is away, ValueError where it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(timeout)
        s.connect(path)
        s.sendall(line.encode() + b"\n")
        answer = s.makefile().readline().strip()
    if not answer.startswith("ok "):
        raise ValueError(answer or "no answer")
    return answer


def install(path, bound=0.5, generation=2):
    """Hooks into the collector; returns the callback, which `gc.callbacks.remove` takes out again."""
    open_socket = []

    def callback(phase, info):
        if info["generation"] < generation:
            return
        try:
            if phase == "start":
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.settimeout(0.05)
                open_socket.append(s)
                s.connect(path)
                # The answer is not waited for: the sidecar reads while we collect.
                s.sendall(b"pause %dms gc generation %d\n" % (bound * 1000, info["generation"]))
            elif open_socket:
                open_socket[-1].sendall(b"resume\n")
        except OSError:
            pass
        finally:
            if phase == "stop" and open_socket:
                open_socket.pop().close()

    gc.callbacks.append(callback)
    return callback


if __name__ == "__main__":
    import sys

    callback = install(sys.argv[1], bound=5.0)
    callback("start", {"generation": 2})
    print(say(sys.argv[1], "pause 3s tried by hand"))
    callback("stop", {"generation": 2})
    gc.collect()
