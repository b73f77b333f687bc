run() {
	exec bwrap --ro-bind / / --proc /proc --dev /dev --unshare-all --die-with-parent \
		sh -c 'id -u; /bin/echo $$; ps -e -o comm=; exit 3'
}
