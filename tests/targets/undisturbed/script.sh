run() { exec script -E never -qec 'echo one; sh -c "echo two; exit 5"' /dev/null; }
