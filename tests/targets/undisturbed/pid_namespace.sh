run() { exec unshare -fp --mount-proc sh -c '/bin/echo $$; ps -e -o pid=,comm= | tr -s " "; exit 3'; }
