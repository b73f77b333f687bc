# A commit's name depends on all its content.
run() {
	export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
	export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
	git init -q -b main first && cd first || return
	for i in 1 2 3; do
		seq $((i * 1000)) >file && git add file && git commit -q -m "commit $i"
	done
	git clone -q --no-local . ../second && cd ../second || return
	git -c gc.pruneExpire=now gc -q
	git fsck --no-progress
	git count-objects -v | grep -E '^(count|in-pack|packs):'
	git log --format='%H %s'
	git rev-parse --verify -q nothing
}
