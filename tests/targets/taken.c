/* 500 blocks by malloc and 300 by calloc. With the argument `probe` it probes its own malloc with a semaphore (ref_ctr_offset)
 * until its standard input ends, which excludes other tracers. Linked statically, it has an allocator of its own. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char __executable_start;

static int probe(void) {
	int type;
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	if (!file || fscanf(file, "%d", &type) != 1)
		return 1;
	struct perf_event_attr event = {
		.type = type,
		.size = sizeof event,
		/* Any place that is not the semaphore's of others. */
		.config = 0x1000UL << 32,
		.uprobe_path = (unsigned long)"/proc/self/exe",
		.probe_offset = (unsigned long)malloc - (unsigned long)&__executable_start,
	};
	if (syscall(SYS_perf_event_open, &event, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC) < 0)
		return 2;
	puts("probed");
	fflush(stdout);
	return getchar() != EOF;
}

int main(int argc, char **argv) {
	if (argc > 1)
		return probe();
	for (int n = 0; n < 500; n++)
		*(volatile char *)malloc(10) = 1;
	for (int n = 0; n < 300; n++)
		*(volatile char *)calloc(2, 10) = 1;
	return 0;
}
