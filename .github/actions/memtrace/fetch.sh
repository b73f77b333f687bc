# The action's first steps. `choose`: the version of `$VERSION`, of the action's own tag `$REF`, or the latest release.
# `fetch`: its program into `$FOLDER`, if the checksums of the release are right.
set -euo pipefail
if [ -z "$REPOSITORY" ]; then
	echo "::error title=memtrace::an action from a local folder has no releases: set the input \`memtrace\`"
	exit 1
fi
releases="$GITHUB_SERVER_URL/$REPOSITORY/releases"
download=(curl --fail --silent --show-error --location --retry 3)

case "$1" in
choose)
	version=${VERSION:-$REF}
	if [[ ! "$version" =~ ^v?[0-9]+\.[0-9]+\.[0-9]+ ]]; then
		# The address of the latest release ends with its tag.
		latest=$("${download[@]}" --output /dev/null --write-out '%{url_effective}' "$releases/latest")
		version=${latest##*/}
	fi
	echo "version=${version#v}" >> "$GITHUB_OUTPUT"
	;;
fetch)
	mkdir -p "$FOLDER"
	cd "$FOLDER"
	name="memtrace-$VERSION-$(uname -m)-linux"
	for file in SHA256SUMS "$name.tar.gz"; do
		"${download[@]}" --output "$file" "$releases/download/v$VERSION/$file"
	done
	grep --fixed-strings " $name.tar.gz" SHA256SUMS | sha256sum --check --strict
	tar -xzf "$name.tar.gz" --strip-components=2 "$name/bin/memtrace"
	rm "$name.tar.gz" SHA256SUMS
	;;
esac
