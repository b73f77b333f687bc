prepare() {
	cat >Makefile <<-'EOF'
	.RECIPEPREFIX = >
	parts := $(foreach n,1 2 3 4 5 6 7 8 9 10 11 12,part$n)
	all: $(parts)
	>@cat $(parts) | sort | uniq -c | tr -s ' '
	>@$(MAKE) -s bad
	part%:
	>@sh -c '(echo made | cat) >$@'
	bad:
	>@exit 3
	EOF
}
run() { exec make -s -j4 all; }
