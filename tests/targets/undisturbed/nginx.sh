# Answers requests before and after a reload, which replaces the workers.
attaches_later=1
port=28432
configure() {
	cat >conf <<-EOF
	worker_processes 2;
	pid pid;
	error_log log;
	events {}
	http {
	    access_log off;
	    server { listen 127.0.0.1:$port; location / { return 200 "$1\n"; } }
	}
	EOF
}
prepare() { configure first; }
ask() {
	{ exec 3<>/dev/tcp/127.0.0.1/$port; } 2>/dev/null || return
	printf 'GET / HTTP/1.0\r\n\r\n' >&3
	tail -n1 <&3
	exec 3>&-
}
run() {
	nginx -p "$PWD" -c conf -e log -g 'daemon off;' & server=$!
	until [ -n "$(ask)" ]; do sleep 0.05; done
	may_attach $server
	ask
	configure second
	kill -HUP $server
	until answer=$(ask) && [ "$answer" = second ]; do sleep 0.05; done
	echo "$answer"
	kill -QUIT $server
	wait $server; echo "ended $?"
	grep -cE 'alert|emerg|exited on signal' log
}
