/* PyTorch's allocator, which calls the C library's, from two places of one function: in the walk from the inner function,
 * only the return address that a probe has replaced tells them apart.
 *
 *   nested_layers FOLDER-OF-LIBC10 */
#include "site.h"

enum { TIMES = 200 };

typedef void *allocate(size_t bytes);

OUT_OF_LINE static void call(allocate *allocate) {
	void *first = allocate(100);
	void *second = allocate(200);
	free(first);
	free(second);
}

int main(int argc, char **argv) {
	(void)argc;
	void *library = load_library(argv[1], "libc10.so");
	allocate *function = (allocate *)dlsym(library, "_ZN3c109alloc_cpuEm");
	if (!function)
		fail("dlsym");
	for (int i = 0; i < TIMES; i++)
		call(function);
	return 0;
}
