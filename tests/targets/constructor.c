/* A library that allocates while it is loaded: 5 blocks of 100 bytes;
 * 2 are freed when it is unloaded. exact.c knows these numbers. */
#include <stdlib.h>

static void *blocks[5];

__attribute__((noipa)) static void *call_constructor(size_t size) {
	void *p = malloc(size);
	__asm__ volatile("" ::: "memory");
	return p;
}

__attribute__((noipa)) static void site_constructor(void) {
	for (int i = 0; i < 5; i++)
		blocks[i] = call_constructor(100);
}

__attribute__((constructor)) static void loaded(void) {
	site_constructor();
	__asm__ volatile("" ::: "memory");
}

__attribute__((destructor)) static void unloaded(void) {
	free(blocks[0]);
	free(blocks[1]);
}
