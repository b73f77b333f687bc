# A child writes the data while the server continues.
attaches_later=1
ask() { redis-cli -s "$PWD/socket" "$@"; }
run() {
	redis-server --port 0 --unixsocket "$PWD/socket" --save '' --dir "$PWD" >log & server=$!
	until [ "$(ask ping 2>/dev/null)" = PONG ]; do sleep 0.05; done
	may_attach $server
	ask eval 'for i = 1, 20000 do redis.call("set", "key" .. i, i) end' 0
	ask bgsave
	while ask info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.05; done
	ask info persistence | grep rdb_last_bgsave_status | tr -d '\r'
	redis-check-rdb dump.rdb | grep -o '20000 keys read'
	ask dbsize
	ask shutdown nosave
	wait $server; echo "ended $?"
}
