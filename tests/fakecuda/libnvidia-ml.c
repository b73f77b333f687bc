/* The management library: one GPU, and the memory (FAKE_NVML) that process FAKE_NVML_PID has on it. */
#include "fake.h"
#include <stdio.h>

struct process_info { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

struct memory { unsigned long long total, free, used; };

EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return (void)flags, 0; }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT const char *nvmlErrorString(int error) { return (void)error, "fake"; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *n) { return *n = 1, 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = device, index != 0; }
EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned n) {
	return (void)device, snprintf(uuid, n, "GPU-0001"), 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
	(void)device;
	memory->total = 16ULL << 30;
	return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process_info *info) {
	(void)device;
	const char *file = getenv("FAKE_NVML");
	FILE *f = file ? fopen(file, "r") : NULL;
	unsigned pid;
	unsigned long long used;
	int found = f && fscanf(f, "%u %llu", &pid, &used) == 2;
	if (f)
		fclose(f);
	if (found && *n < 1)
		return *n = 1, 7; /* insufficient size */
	*n = (unsigned)found;
	if (found)
		*info = (struct process_info){pid, used, 0xffffffff, 0xffffffff};
	return 0;
}
