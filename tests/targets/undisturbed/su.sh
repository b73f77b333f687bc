run() { exec su nobody -s /bin/sh -c 'id -un; sh -c "exit 3"'; }
