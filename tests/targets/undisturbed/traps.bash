# Each child that ends is one SIGCHLD, and no other.
trap 'children=$((children + 1))' CHLD
trap 'echo INT' INT
trap 'echo "EXIT $?"' EXIT
children=0
for i in {1..10}; do /bin/true; done
sh -c 'exit 4' & wait $!; echo "waited $?"
text=$(/bin/echo substituted); echo "$text"
echo "children $children"
kill -INT $$
sh -c 'kill -INT $PPID'
exit 3
