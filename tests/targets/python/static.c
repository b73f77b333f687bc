// A library with a variable that holds an object of Python.

void *held;
