/* malloc called by a jump. `where` prints the jumping function's offset in this file.
 *
 *   tail_call [where]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 2000 };

__attribute__((noipa, optimize("O2", "optimize-sibling-calls"))) void *jump_to_malloc(size_t size) {
	return malloc(size);
}

__attribute__((noipa)) void *caller(size_t size) {
	void *block = jump_to_malloc(size);
	__asm__ volatile("" ::: "memory");
	return block;
}

__attribute__((noipa)) void *direct(size_t size) {
	void *block = malloc(size);
	__asm__ volatile("" ::: "memory");
	return block;
}

int main(int argc, char **argv) {
	Dl_info file;
	(void)argv;
	if (argc == 2 && dladdr((void *)jump_to_malloc, &file) != 0)
		return printf("%ld\n", (long)((char *)jump_to_malloc - (char *)file.dli_fbase)) < 0;
	for (int i = 0; i < CALLS; i++) {
		free(caller(i % 1000));
		free(direct(i % 1000));
	}
	return 0;
}
