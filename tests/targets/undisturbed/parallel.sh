run() {
	seq 12 | parallel --will-cite -j4 -k 'sh -c "exit $(({} % 3))"; echo {} $?'
	echo "${PIPESTATUS[*]}"
	parallel --will-cite -j2 sh -c '"exit {}"' ::: 0 1 1 0
}
