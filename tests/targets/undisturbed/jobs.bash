# Statuses and output of jobs under job control; none of them stops.
set -m
sh -c 'exit 1' & first=$!
wait $first; echo "first $?"
(echo 'from a subshell'; exit 4) & second=$!
wait $second; echo "second $?"
printf 'b\na\n' | sort | tr a-z A-Z; echo "pipeline ${PIPESTATUS[*]}"
kept=$(for i in 1 2 3; do /bin/echo $i; done | cat); echo $kept
sh -c 'exit 6'; echo "foreground $?"
for i in {1..20}; do /bin/true || echo "true: $?"; done
{ printf 'x\ny\n' | wc -l; exit 7; } &
wait $!; echo "background $?"
