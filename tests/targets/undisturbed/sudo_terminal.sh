# sudo runs its command in a terminal of its own (`use_pty`), with a monitor between them.
run() { exec script -E never -qec "sudo -n -u nobody sh -c 'id -un; sh -c \"exit 3\"'" /dev/null; }
