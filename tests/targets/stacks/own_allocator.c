/* A program with an allocator of its own: it jumps out of it, and allocates
 * inside it. Both happen while the allocator's return is watched.
 *
 *   own_allocator TRUTH   ends with code 7
 */
#include "probe.h"
#include <setjmp.h>
#include <stddef.h>
#include <string.h>

enum { LEAVES = 101, CALLS = 102, CALLS_TWICE = 103 };
enum { ALIGNMENT = 16, DEPTH = 8, ROUNDS = 3 };

static jmp_buf away;
static void hook(void), outer_hook(void);

static char pool[1 << 24] __attribute__((aligned(ALIGNMENT)));
static size_t used;

/* Never gives anything back. Each block's size is before it. */
void *malloc(size_t size) {
	if (size == LEAVES)
		longjmp(away, 1);
	if (size == CALLS)
		hook();
	if (size == CALLS_TWICE)
		outer_hook();
	size_t taken = ALIGNMENT + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	size_t at = __atomic_fetch_add(&used, taken, __ATOMIC_RELAXED);
	if (at + taken > sizeof pool)
		broken("the pool is empty");
	memcpy(&pool[at], &size, sizeof size);
	return &pool[at + ALIGNMENT];
}
void free(void *p) { KEEP(p); }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *p, size_t size) {
	size_t before = 0;
	void *result = malloc(size);
	if (p)
		memcpy(&before, (char *)p - ALIGNMENT, sizeof before);
	if (p)
		memcpy(result, p, before < size ? before : size);
	return result;
}

OUT_OF_LINE static void leaves(int depth) {
	if (depth)
		leaves(depth - 1);
	else
		KEEP(malloc(LEAVES));
	BARRIER();
}
OUT_OF_LINE static void stays(int depth) {
	if (depth)
		stays(depth - 1);
	else
		probe(MALLOC, "stays<*<case_left<main<*");
	BARRIER();
}
/* Frames come to lie where the abandoned ones were. */
OUT_OF_LINE static void case_left(void) {
	for (volatile int depth = 0; depth < DEPTH; depth++) {
		if (!setjmp(away))
			leaves(depth);
		for (int i = 0; i < DEPTH; i++)
			stays(i);
	}
}

static const char *path;
OUT_OF_LINE static void hook(void) {
	probe(MAP, path);
	BARRIER();
}
OUT_OF_LINE static void outer_hook(void) {
	KEEP(malloc(CALLS));
	BARRIER();
}
OUT_OF_LINE static void allocates(size_t size) {
	KEEP(malloc(size));
	BARRIER();
}
OUT_OF_LINE static void case_inside(void) {
	/* The return addresses of `malloc` are the tracer's: no unwinder passes. */
	walk_stacks(0);
	path = "hook<malloc<allocates<case_inside<main<*";
	allocates(CALLS);
	path = "hook<malloc<outer_hook<malloc<allocates<case_inside<main<*";
	allocates(CALLS_TWICE);
	walk_stacks(1);
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 96;
	for (volatile int round = 0; round < ROUNDS; round++) {
		case_left();
		case_inside();
	}
	write_stacks(argv[1]);
	return 7;
}
