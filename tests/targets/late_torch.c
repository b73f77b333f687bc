/* PyTorch's allocator on the second of two devices, in use before tracing begins.
 *
 *   late_torch FOLDER   one block, "ready", await a byte; forty more, "grown", await a byte;
 *                       give back all blocks and their segments, "emptied", await a byte;
 *                       one that is too large, "refused", await a byte */
#include "../fakecuda/fake.h"
#include "site.h"

enum { DEVICE = 1, BYTES = 100000, MORE = 40, TOO_LARGE = 40 << 20 };

int main(int argc, char **argv) {
	if (argc < 2)
		return 96;
	const char *names[] = {"libcuda.so.1", "libcudart.so.13", "libc10.so", "libc10_cuda.so"};
	void *torch = NULL;
	for (int i = 0; i < 4; i++)
		torch = load_library(argv[1], names[i]);
	void *(*allocate)(size_t, int) = (void *(*)(size_t, int))dlsym(torch, "torch_malloc");
	void (*release)(void *, size_t, int) = (void (*)(void *, size_t, int))dlsym(torch, "torch_free");
	void (*empty)(int) = (void (*)(int))dlsym(torch, "torch_empty_cache");
	void *blocks[1 + MORE] = {allocate(BYTES, DEVICE)};
	say("ready\n");
	await_byte();
	for (int i = 1; i <= MORE; i++)
		blocks[i] = allocate(BYTES, DEVICE);
	say("grown\n");
	await_byte();
	for (int i = 0; i <= MORE; i++)
		release(blocks[i], BYTES, DEVICE);
	empty(DEVICE);
	say("emptied\n");
	await_byte();
	if (allocate(TOO_LARGE, DEVICE))
		return 95;
	say("refused\n");
	await_byte();
	return 0;
}
