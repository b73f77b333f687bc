/* A caching allocator that reports as PyTorch's does: blocks of 512 bytes'
 * multiples out of segments of 2 MiB, which it keeps until told otherwise. */
#include "fake.h"

extern int cudaMalloc(void **, size_t), cudaSetDevice(int), cudaFree(void *), cudaMallocAsync(void **, size_t, void *),
    cudaFreeAsync(void *, void *), cudaGetDriverEntryPoint(const char *, void **, uint64_t, int *);
extern void report(void *, ptrdiff_t, size_t, size_t, uint16_t)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

extern void out_of_memory(int64_t, size_t, size_t, uint16_t)
    __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

enum { SEGMENT = 2 << 20, SEGMENTS = 64, CUDA = 1 };

static struct segment {
	char *at;
	size_t used, live;
	int device;
} segments[SEGMENTS];
static size_t allocated[2], reserved[2];
static char next_block[1 << 26];
static size_t next_at;

static size_t rounded(size_t bytes) { return (bytes + 511) / 512 * 512; }

EXPORT void torch_sums(int device, size_t *allocated_, size_t *reserved_) {
	*allocated_ = allocated[device], *reserved_ = reserved[device];
}

/* Blocks are addresses that nobody looks at, distinct ones as long as `next_block` lasts. */
EXPORT void *torch_malloc(size_t bytes, int device) {
	bytes = rounded(bytes);
	struct segment *s = segments;
	while (s->at && (s->device != device || s->used + bytes > SEGMENT))
		s++;
	if (!s->at) {
		void *p;
		cudaSetDevice(device);
		if (bytes > SEGMENT || cudaMalloc(&p, SEGMENT)) {
			out_of_memory((int64_t)bytes, allocated[device], reserved[device],
				      (uint16_t)(device << 8 | CUDA));
			return NULL;
		}
		*s = (struct segment){p, 0, 0, device};
		reserved[device] += SEGMENT;
	}
	s->used += bytes, s->live += bytes, allocated[device] += bytes;
	void *block = &next_block[next_at];
	next_at += bytes;
	report(block, (ptrdiff_t)bytes, allocated[device], reserved[device], (uint16_t)(device << 8 | CUDA));
	return block;
}

EXPORT void torch_free(void *block, size_t bytes, int device) {
	bytes = rounded(bytes), allocated[device] -= bytes;
	report(block, -(ptrdiff_t)bytes, allocated[device], reserved[device], (uint16_t)(device << 8 | CUDA));
}

/* Gives back every segment of a device, whose blocks must be free. Reports nothing. */
EXPORT void torch_empty_cache(int device) {
	for (struct segment *s = segments; s->at; s++)
		if (s->device == device && s->used) {
			cudaFree(s->at);
			s->used = 0, s->device = -1, reserved[device] -= SEGMENT;
		}
}

/* A block of the driver's pool of device 0, as with PyTorch's backend cudaMallocAsync: not reported. */
EXPORT void *torch_malloc_async(size_t bytes) {
	void *p;
	cudaSetDevice(0);
	return cudaMallocAsync(&p, bytes, NULL) ? NULL : p;
}
EXPORT void torch_free_async(void *block) { cudaFreeAsync(block, NULL); }

/* An expandable segment: physical memory mapped into a range, by functions asked for by name. */
static int (*create)(uint64_t *, size_t, const struct properties *, uint64_t), (*release)(uint64_t),
    (*map)(void *, size_t, size_t, uint64_t, uint64_t), (*unmap)(void *, size_t);
static uint64_t handle;

EXPORT void *torch_expand(size_t bytes, int device) {
	cudaGetDriverEntryPoint("cuMemCreate", (void **)&create, 0, NULL);
	cudaGetDriverEntryPoint("cuMemRelease", (void **)&release, 0, NULL);
	cudaGetDriverEntryPoint("cuMemMap", (void **)&map, 0, NULL);
	cudaGetDriverEntryPoint("cuMemUnmap", (void **)&unmap, 0, NULL);
	struct properties p = {1, 0, 1, device};
	if (create(&handle, bytes, &p, 0))
		return NULL;
	map(next_block, bytes, 0, handle, 0);
	reserved[device] += bytes;
	return next_block;
}
EXPORT void torch_shrink(size_t bytes, int device) {
	unmap(next_block, bytes);
	release(handle);
	reserved[device] -= bytes;
}
