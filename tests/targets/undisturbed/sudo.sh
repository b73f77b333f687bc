run() { exec sudo -n sh -c 'id -un; sh -c "exit 3"'; }
