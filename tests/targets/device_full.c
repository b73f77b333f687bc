/* Keeps memory of a device, 100 MiB a second, until the device has no more after 12 seconds; ends a second later.
 *
 *   device_full FOLDER */
#include "site.h"
#include "../fakecuda/fake.h"
#include <time.h>

enum { SECONDS = 12, A_SECOND = 100 };

void **kept;

static int (*allocate)(void **, size_t);

OUT_OF_LINE static int keep(int i) {
	int error = allocate(&kept[i], 1 << 20);
	BARRIER();
	return error;
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 96;
	void *driver = load_library(argv[1], "libcuda.so.1");
	void *runtime = load_library(argv[1], "libcudart.so.13");
	allocate = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
	void (*fail_next)(int, int) = (void (*)(int, int))dlsym(driver, "fake_fail");
	kept = calloc(SECONDS * A_SECOND, sizeof *kept);
	struct timespec pause = {0, 1000000000 / A_SECOND};
	for (int i = 0; i < SECONDS * A_SECOND - 1; i++) {
		if (keep(i))
			fail("cudaMalloc");
		nanosleep(&pause, NULL);
	}
	fail_next(1, OUT_OF_MEMORY);
	int error = keep(SECONDS * A_SECOND - 1);
	struct timespec end = {1, 0};
	nanosleep(&end, NULL);
	return error ? 0 : 95;
}
