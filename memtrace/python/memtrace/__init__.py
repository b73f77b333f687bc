"""The program `memtrace` is in the folder for scripts; this package has its plugin for pytest."""
