# The program is traced already when memtrace comes.
attaches_later=1
run() {
	mkfifo go
	strace -f -qq -o log -e trace=execve sh -c 'read line <go; /bin/echo one; exit 3' & strace=$!
	until target=$(pgrep -x -P $strace sh) && [ "$(tracer "$target")" = $strace ]; do sleep 0.02; done
	may_attach "$target"
	echo >go
	wait $strace; echo "status $?"
	grep -c execve log
	grep -cE 'SIG(STOP|CONT|TRAP)' log
}
