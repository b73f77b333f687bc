"""Objects that are kept in known ways: prints how much, then `ready`."""

import sys


class Session:
    __slots__ = ("data",)

    def __init__(self):
        self.data = bytes(5000)


class Shared:
    __slots__ = ("data",)

    def __init__(self):
        self.data = bytes(3000)


class Server:
    def __init__(self):
        self.sessions = [Session() for _ in range(2000)]


def size(objects):
    return sum(sys.getsizeof(one) + sys.getsizeof(one.data) for one in objects)


if __name__ == "__main__":
    server = Server()
    one = [Shared() for _ in range(1000)]
    # Neither of the two has them alone.
    other = list(one)
    print("sessions", size(server.sessions) + sys.getsizeof(server.sessions))
    print("shared", size(one))
    print("ready", flush=True)
    input()
