# A job that stops itself does stop, and resumes when it is continued.
. "$CASES/jobs.bash"
sh -c 'kill -STOP $$; exit 8' & stopped=$!
wait $stopped 2>/dev/null; echo "stopped $?"
jobs
bg
wait $stopped; echo "continued $?"
sh -c 'kill -STOP $$; exit 9'; echo "stopped in the foreground $?"
fg; echo "continued $?"
