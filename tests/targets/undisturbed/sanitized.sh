prepare() {
	for kind in leak address; do
		gcc -g -pthread -fsanitize=$kind -o $kind "$CASES/sanitized.c"
	done
}
run() {
	for kind in leak address; do
		for threads in 0 3; do
			ASAN_OPTIONS=exitcode=7 LSAN_OPTIONS=exitcode=7 ./$kind $threads >report 2>&1
			echo "$kind, $threads threads: $?"
			grep -oE 'Direct.*|SUMMARY.*|HINT.*|#1 .* in leak' report | sed 's/0x[0-9a-f]*/ADDRESS/'
		done
	done
}
