prepare() {
	gcc -o privileged "$CASES/setuid.c"
	chmod 4755 privileged
}
run() { exec su nobody -s /bin/sh -c './privileged; sh -c "exec ./privileged"'; }
