# The program is debugged already when memtrace comes.
attaches_later=1
run() {
	mkfifo go
	sh -c 'read line <go; /bin/echo one; exit 3' & target=$!
	gdb -q -nx -batch -p $target -ex 'shell touch attached' -ex continue >log 2>&1 & gdb=$!
	until [ -e attached ]; do sleep 0.02; done
	may_attach $target
	echo >go
	wait $target; echo "target $?"
	wait $gdb; echo "gdb $?"
	grep -oE 'exited with code [0-9]+' log
	grep -cE 'SIG(STOP|CONT|TRAP)' log
}
