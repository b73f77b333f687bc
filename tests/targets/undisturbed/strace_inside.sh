run() {
	strace -f -qq -o log -e trace=execve sh -c '/bin/echo one; /bin/echo two; exit 3'
	echo "status $?"
	grep -c execve log
	grep -cE 'SIG(STOP|CONT|TRAP)' log
}
