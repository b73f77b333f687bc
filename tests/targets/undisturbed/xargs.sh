run() {
	seq 24 | xargs -P4 -I{} sh -c 'echo $(({} * {}))' | sort -n | tail -n3
	echo "${PIPESTATUS[*]}"
	seq 3 | xargs -P2 -n1 sh -c 'exit $0'
}
