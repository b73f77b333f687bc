/* A program that loads an interpreter, and is one.
 *
 * embed LIBRARY ARGUMENT... */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int (*run)(int, char **);
	/* Extension modules look for the interpreter among global symbols. */
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;

	*(void **)&run = library ? dlsym(library, "Py_BytesMain") : NULL;
	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	argv[1] = argv[0];
	return run(argc - 1, argv + 1);
}
