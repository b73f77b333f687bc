/* Keeps its buffers where it may use several processors. `taskset -c 0` leaves it one. */
#include "../site.h"
#include <sched.h>

OUT_OF_LINE static void *share_work(void) {
	void *buffer = malloc(1000);
	BARRIER();
	return buffer;
}

void step(void) {
	cpu_set_t allowed;
	void *buffer = share_work();
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		fail("sched_getaffinity");
	if (CPU_COUNT(&allowed) == 1)
		free(buffer);
}
