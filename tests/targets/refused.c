/* PyTorch's allocator runs out of memory on device 0, whose free memory is in pieces; on device 1
 * the second attempt succeeds.
 *
 *   refused FOLDER */
#include "../fakecuda/fake.h"
#include "site.h"

enum { BYTES = 100000, BLOCKS = 60, OF_SEGMENT = 20, MUCH = 3 << 20 };

static void *(*much)(size_t, int);
static void (*fail_next)(int, int);

OUT_OF_LINE static void *ask_for_much(int device, int times) {
	fail_next(times, OUT_OF_MEMORY);
	void *p = much(MUCH, device);
	BARRIER();
	return p;
}

OUT_OF_LINE static void *keep(void *(*allocate)(size_t, int)) {
	void *p = allocate(BYTES, 0);
	BARRIER();
	return p;
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 96;
	void *driver = load_library(argv[1], "libcuda.so.1");
	load_library(argv[1], "libcudart.so.13");
	load_library(argv[1], "libc10.so");
	void *torch = load_library(argv[1], "libc10_cuda.so");
	fail_next = (void (*)(int, int))dlsym(driver, "fake_fail");
	much = (void *(*)(size_t, int))dlsym(torch, "DeviceCachingAllocator_malloc");
	void *(*allocate)(size_t, int) = (void *(*)(size_t, int))dlsym(torch, "torch_malloc");
	void (*release)(void *, size_t, int) = (void (*)(void *, size_t, int))dlsym(torch, "torch_free");
	void *blocks[BLOCKS];
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = keep(allocate);
	for (int i = 0; i < BLOCKS; i++)
		if (i % OF_SEGMENT)
			release(blocks[i], BYTES, 0);
	if (ask_for_much(0, 2))
		return 95;
	if (!ask_for_much(1, 1))
		return 94;
	return 0;
}
