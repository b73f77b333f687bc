# Answers requests before and after a reload, which replaces the worker. There is one only: another
# might get gunicorn's SIGTERM while it starts, and miss it.
attaches_later=1
port=28431
prepare() {
	echo first >text
	cat >app.py <<-'EOF'
	TEXT = open("text", "rb").read()

	def app(environ, start_response):
	    start_response("200 OK", [("Content-Length", str(len(TEXT)))])
	    return [TEXT]
	EOF
}
ask() {
	{ exec 3<>/dev/tcp/127.0.0.1/$port; } 2>/dev/null || return
	printf 'GET / HTTP/1.0\r\n\r\n' >&3
	tail -n1 <&3
	exec 3>&-
}
run() {
	/usr/bin/python3 -m gunicorn -b 127.0.0.1:$port -w 1 app:app 2>log & server=$!
	until [ -n "$(ask)" ]; do sleep 0.05; done
	may_attach $server
	ask
	echo second >text
	kill -HUP $server
	until answer=$(ask) && [ "$answer" = second ]; do sleep 0.05; done
	echo "$answer"
	kill -TERM $server
	wait $server; echo "ended $?"
}
