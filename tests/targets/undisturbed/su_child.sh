# The child of su is attached to, and then loads libraries: su must not see it stopped.
attaches_later=1
prepare() { chmod 777 .; }
run() {
	su nobody -s /bin/bash -c '. $CASES/attach.sh; may_attach $$
		exec /usr/bin/python3 -c "import sqlite3, ssl, ctypes; print(ssl.HAS_TLSv1_3); exit(3)"'
}
