/* A caching allocator that reports as PyTorch's does: blocks of 512 bytes'
 * multiples out of segments of 2 MiB, which it keeps until it is emptied. */
#include "fake.h"

extern int cudaMalloc(void **, size_t), cudaSetDevice(int), cudaGetDevice(int *), cudaFree(void *), cudaMallocAsync(void **, size_t, void *),
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
static char expanded[1 << 23];

/* A statically defined probe as systemtap's sys/sdt.h makes it: a nop, and a note with its place
 * and its arguments. Fires only while somebody has raised the semaphore. */
unsigned short malloc_semaphore __attribute__((section(".probes"), used, visibility("hidden")));

static __attribute__((noinline)) void probe(void *block, int8_t device, size_t size, void *stream) {
	__asm__ volatile("990: nop\n"
			 ".pushsection .note.stapsdt, \"\", \"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f - 991f, 994f - 993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte 990b, 0, malloc_semaphore\n"
			 ".asciz \"pytorch\"\n"
			 ".asciz \"malloc\"\n"
			 ".asciz \"-8@%0 -1@%1 -8@%2 -8@%3\"\n"
			 "994: .balign 4\n"
			 ".popsection\n" ::"r"(block),
			 "r"(device), "m"(size), "r"(stream));
}

static size_t rounded(size_t bytes) { return (bytes + 511) / 512 * 512; }

EXPORT void torch_sums(int device, size_t *allocated_, size_t *reserved_) {
	*allocated_ = allocated[device], *reserved_ = reserved[device];
}

/* As PyTorch does: only where it is another one. */
static void set_device(int device) {
	int now;
	if (cudaGetDevice(&now) || now != device)
		cudaSetDevice(device);
}

/* Blocks are addresses in segments that are never accessed. Those of device 1 are on a stream. */
EXPORT void *torch_malloc(size_t requested, int device) {
	size_t bytes = rounded(requested);
	struct segment *s = segments;
	while (s->at && (s->device != device || s->used + bytes > SEGMENT))
		s++;
	if (!s->at) {
		void *p;
		set_device(device);
		if (bytes > SEGMENT || cudaMalloc(&p, SEGMENT)) {
			out_of_memory((int64_t)bytes, allocated[device], reserved[device],
				      (uint16_t)(device << 8 | CUDA));
			return NULL;
		}
		*s = (struct segment){p, 0, 0, device};
		reserved[device] += SEGMENT;
	}
	void *block = s->at + s->used;
	s->used += bytes, s->live += bytes, allocated[device] += bytes;
	report(block, (ptrdiff_t)bytes, allocated[device], reserved[device], (uint16_t)(device << 8 | CUDA));
	if (*(volatile unsigned short *)&malloc_semaphore)
		probe(block, (int8_t)device, requested, (void *)(uintptr_t)(device ? 7 : 0));
	return block;
}

/* A block of its own segment. Asks the runtime once more, as PyTorch's allocator of this name does, though it
 * has nothing to give back. */
EXPORT void *DeviceCachingAllocator_malloc(size_t bytes, int device) {
	void *p;
	set_device(device);
	if (cudaMalloc(&p, bytes) && cudaMalloc(&p, bytes)) {
		out_of_memory((int64_t)bytes, allocated[device], reserved[device], (uint16_t)(device << 8 | CUDA));
		return NULL;
	}
	reserved[device] += bytes, allocated[device] += bytes;
	report(p, (ptrdiff_t)bytes, allocated[device], reserved[device], (uint16_t)(device << 8 | CUDA));
	return p;
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
	set_device(0);
	return cudaMallocAsync(&p, bytes, NULL) ? NULL : p;
}
EXPORT void torch_free_async(void *block) { cudaFreeAsync(block, NULL); }

/* An expandable segment: physical memory mapped into a range, by functions looked up by name. */
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
	map(expanded, bytes, 0, handle, 0);
	reserved[device] += bytes;
	return expanded;
}
EXPORT void torch_shrink(size_t bytes, int device) {
	unmap(expanded, bytes);
	release(handle);
	reserved[device] -= bytes;
}
