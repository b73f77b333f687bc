run() { setsid -w sh -c 'ps -o sid= -p $$ | grep -qw $$ && /bin/echo leads; exit 3'; }
