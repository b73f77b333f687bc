prepare() { cp "$CASES/debugged.c" . && gcc -g -O0 -o debugged debugged.c; }
run() {
	gdb -q -nx -batch -ex 'break work' -ex run -ex backtrace -ex continue ./debugged |
		sed -E '/libthread_db/d; s/process [0-9]+/process N/; s/0x[0-9a-f]+/ADDRESS/'
}
