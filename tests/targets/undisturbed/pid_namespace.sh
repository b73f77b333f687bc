run() {
	exec unshare -fp --mount-proc sh -c '/bin/echo $$; ps -e -o pid=,comm= >processes; tr -s " " <processes; exit 3'
}
