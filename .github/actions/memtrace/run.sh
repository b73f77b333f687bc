# The action's step: runs `$COMMAND` as the present user under `$MEMTRACE`, which needs root.
set -euo pipefail
folder="$RUNNER_TEMP/memtrace"
mkdir -p "$folder"
result="$folder/result.json"
summary="$folder/summary.md"
echo "result=$result" >> "$GITHUB_OUTPUT"

options=()
for condition in $FAIL_ON; do
	options+=("--fail-on=$condition")
done
user=(setpriv "--reuid=$(id -u)" "--regid=$(id -g)" --init-groups)
status=0
sudo --preserve-env env "PATH=$PATH" "$(command -v "$MEMTRACE")" run --force "${options[@]}" \
	--json "$result" --markdown "$summary" --output "$folder/run.mtr" -- "${user[@]}" bash -ec "$COMMAND" || status=$?
sudo chown --recursive "$(id -u):$(id -g)" "$folder"

if [ -f "$summary" ]; then
	cat "$summary" >> "$GITHUB_STEP_SUMMARY"
fi
if [ "$status" = 99 ]; then
	echo "::error title=memtrace::a condition holds: see the job's summary"
fi
exit "$status"
