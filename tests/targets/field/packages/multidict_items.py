"""Reads query parameters of requests through the views of a MultiDict.
The fault is the package's: multidict 6.3.0 keeps a reference to each tuple that a view makes (#1117)."""
import time

from multidict import MultiDict


def parameters(request):
    query = MultiDict([("id", "%d" % request), ("page", "x" * 200), ("tag", "y" * 100)])
    return dict(query.items())  # allocates


count = 0
while True:
    for _ in range(20):
        count += 1
        parameters(count)
    if count == 5000:
        print("serving", flush=True)
    time.sleep(0.02)
