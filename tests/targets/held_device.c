/* Attached to while it waits: has chosen no device, then holds 30 MiB of one.
 *
 *   held_device FOLDER */
#include "site.h"
#include "../fakecuda/fake.h"

int main(int argc, char **argv) {
	if (argc < 2)
		return 96;
	load_library(argv[1], "libcuda.so.1");
	void *runtime = load_library(argv[1], "libcudart.so.13");
	int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
	int (*choose)(int) = (int (*)(int))dlsym(runtime, "cudaSetDevice");
	say("ready\n");
	await_byte();
	choose(0);
	for (int i = 0; i < 30; i++) {
		void *p;
		if (allocate(&p, 1 << 20))
			fail("cudaMalloc");
	}
	say("done\n");
	await_byte();
	return 0;
}
