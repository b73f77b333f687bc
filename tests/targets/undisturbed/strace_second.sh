# memtrace is there first. strace may be refused at first, but not for long.
attaches_later=1
. "$CASES/late_tracer.sh"
run() {
	mkfifo go
	sh -c 'read line <go; /bin/echo one; exit 3' & target=$!
	may_attach $target
	start_tracer $target strace -f -qq -o log -e trace=execve -p $target
	echo >go
	wait $target; echo "target $?"
	wait $tracing; echo "strace $?"
	grep -c execve log
	grep -cE 'SIG(STOP|CONT|TRAP)' log
}
