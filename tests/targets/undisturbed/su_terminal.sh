# su runs its command in a terminal of its own. It may echo that its input has ended.
run() {
	script -E never -qec "su --pty -s /bin/sh -c 'id -un; sh -c \"exit 3\"' nobody" /dev/null |
		sed 's/\^@\x08*//'
	return "${PIPESTATUS[0]}"
}
