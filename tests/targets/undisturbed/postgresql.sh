# Starts by its own start program under su, answers with the help of parallel workers, ends.
attaches_later=1
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n1)
prepare() {
	mkdir data && chown postgres data
	runuser -u postgres -- "$bin/initdb" -D data -A trust --no-sync --no-locale -E UTF8
}
as_postgres() { su postgres -s /bin/sh -c "cd data && PATH=$bin:\$PATH; $1"; }
run() {
	as_postgres "pg_ctl -w -s -D . -o '-k . -c listen_addresses=' -l log start"
	echo "started $?"
	may_attach "$(head -n1 data/postmaster.pid)"
	as_postgres 'psql -h "$PWD" -Atq postgres' <<-'EOF'
	create table numbers as select generate_series(1, 200000) as n;
	set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
	select sum(n) from numbers;
	EOF
	as_postgres 'pg_ctl -w -s -D . -m fast stop'
	echo "stopped $?"
	grep -cE 'FATAL|PANIC|terminated by signal' data/log
}
