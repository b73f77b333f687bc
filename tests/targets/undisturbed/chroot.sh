# A root folder that holds one program linked statically, and one with its libraries.
prepare() {
	mkdir root
	gcc -static -o root/inside "$CASES/debugged.c"
	gcc -o root/dynamic "$CASES/debugged.c"
	ldd root/dynamic | grep -oE '/[^ ]+' | xargs -I{} cp --parents -L {} root
}
run() {
	chroot root /inside; echo "status $?"
	exec chroot root /dynamic
}
