# may_attach PID: the test may attach to the process now; returns once it has, or will not.
may_attach() {
	echo "$1" >asked.new
	mv asked.new asked
	read -r _ <answer
}

# tracer PID: who traces the process; 0: nobody.
tracer() {
	sed -n 's/^TracerPid:\t//p' "/proc/$1/status"
}
