"""Validates a tree by a type adapter made for each request.
The fault is the package's: a recursive validator of pydantic 2.5.2 is never freed (#8397)."""
import time

from pydantic import BaseModel, TypeAdapter


class Bar(BaseModel):
    ...


class Foo(BaseModel):
    children: list["Foo"]
    bar: Bar


def request():
    return TypeAdapter(list[Foo]).validate_python([{"children": [], "bar": Bar()}])  # allocates


count = 0
while True:
    request()
    count += 1
    if count == 250:
        print("serving", flush=True)
    time.sleep(0.02)
