# Recordings that begin, end and are killed side by side while processes fork, execute and exit. Each round is a line of
# $OUT/rounds; the kernel's messages are in $OUT/dmesg at the end. Expects $STORM, $SECONDS_LONG, $LONGEST_ROUND and $MEMTRACE_BIN.
cd /tmp
end=$((SECONDS + SECONDS_LONG))
truncate -s 4096 /tmp/storm
"$STORM" /tmp/storm 4 &
storm=$!

# Records until a time or a signal, in a folder of its own: NAME, SIGNAL, OPTIONS…
round() {
    local name=$1 signal=$2
    shift 2
    mkdir -p "/tmp/$name"
    "$MEMTRACE_BIN" record -f --no-holders -o "/tmp/$name/x.mtr" "$@" > "/tmp/$name/log" 2>&1 &
    local record=$!
    # Half of the signals meet memtrace while it sets its probes.
    [ -z "$signal" ] || { sleep "$((RANDOM % 20)).$RANDOM"; kill "-$signal" "$record"; }
    wait "$record"
    echo "$name $?" >> "$OUT/rounds"
}
while_time() {
    while [ "$SECONDS" -lt "$end" ]; do "$@"; done
}

# Two recordings at a time: an emulated processor takes minutes to remove the events of more.
by_itself() {
    round attached '' -d 5s -p "$storm"
    round interrupted INT -p "$storm"
    round launched '' -- bash -c 'for i in $(seq 20); do /bin/true & done; wait'
}
by_force() {
    round one-by-one '' -d 5s --one-by-one -p "$storm"
    round killed KILL --one-by-one -p "$storm"
    round pauser-killed '' -d 5s -p "$storm"
}
while_time by_itself &
while_time by_force &
while_time sh -c 'sleep 7; pkill -KILL -f "^memtrace pause"' &
while [ "$SECONDS" -lt "$end" ]; do sleep 1; done
kill -0 "$storm" && echo "storm 0" >> "$OUT/rounds"
# Recordings must come to their end now. With more new processes, an emulated processor never would.
kill -KILL -- "$storm" $(pgrep -f "^$STORM ") 2> /dev/null
last=$((SECONDS + LONGEST_ROUND))
while pgrep -f "^$MEMTRACE_BIN record" > /dev/null && [ "$SECONDS" -lt "$last" ]; do sleep 1; done
for process in $(pgrep -f "^$MEMTRACE_BIN|^memtrace"); do
    echo "$process $(tr '\0' ' ' < "/proc/$process/cmdline")"
    cat /proc/"$process"/task/*/stack
done > "$OUT/left" 2>&1
cat /sys/kernel/tracing/uprobe_events > "$OUT/uprobe_events" 2> /dev/null
dmesg > "$OUT/dmesg"
