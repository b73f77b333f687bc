# bash names the pid of one that was killed.
run() {
	timeout 0.2 sleep 100; echo "TERM $?"
	{ timeout -s KILL 0.2 sleep 100; } 2>/dev/null; echo "KILL $?"
	timeout 100 sh -c 'exit 3'; echo "in time $?"
	{ timeout -k 0.2 0.2 sh -c 'trap "" TERM; sleep 100'; } 2>/dev/null; echo "TERM ignored $?"
	timeout --foreground 0.2 sleep 100
}
