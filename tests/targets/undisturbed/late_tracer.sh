# start_tracer PID COMMAND…: runs a tracer of the process in the background, again where it is
# refused, until it traces; its pid is $tracing.
start_tracer() {
	local target=$1 try
	shift
	for try in {1..50}; do
		"$@" >tracer.log 2>&1 & tracing=$!
		while kill -0 $tracing 2>/dev/null; do
			[ "$(tracer "$target")" != $tracing ] || return 0
			sleep 0.02
		done
		wait $tracing
		sleep 0.1
	done
	echo "refused: $*"
	cat tracer.log
	return 1
}
