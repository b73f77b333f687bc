# memtrace is there first. gdb may be refused at first, but not for long.
attaches_later=1
. "$CASES/late_tracer.sh"
run() {
	mkfifo go
	sh -c 'read line <go; /bin/echo one; exit 3' & target=$!
	may_attach $target
	start_tracer $target gdb -q -nx -batch -p $target -ex continue
	echo >go
	wait $target; echo "target $?"
	wait $tracing; echo "gdb $?"
	grep -oE 'exited with code [0-9]+' tracer.log
	grep -cE 'SIG(STOP|CONT|TRAP)' tracer.log
}
