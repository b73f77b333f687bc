/* The functions that PyTorch's libc10 exports to be probed, by their mangled names. */
#include "fake.h"

EXPORT void report(void *block, ptrdiff_t bytes, size_t allocated, size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
EXPORT void report(void *block, ptrdiff_t bytes, size_t allocated, size_t reserved, uint16_t device) {
	__asm__ volatile("" ::"r"(block), "r"(bytes), "r"(allocated), "r"(reserved), "r"((int)device));
}

EXPORT void out_of_memory(int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
EXPORT void out_of_memory(int64_t bytes, size_t allocated, size_t reserved, uint16_t device) {
	__asm__ volatile("" ::"r"(bytes), "r"(allocated), "r"(reserved), "r"((int)device));
}

EXPORT void *alloc_cpu(size_t bytes) __asm__("_ZN3c109alloc_cpuEm");
EXPORT void *alloc_cpu(size_t bytes) {
	void *block = NULL;
	return bytes && !posix_memalign(&block, 64, bytes) ? block : NULL;
}
EXPORT void free_cpu(void *block) __asm__("_ZN3c108free_cpuEPv");
EXPORT void free_cpu(void *block) { free(block); }
