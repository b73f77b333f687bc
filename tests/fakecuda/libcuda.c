/* The driver. `fake_fail(n, code)` lets the next n allocations fail. */
#include "fake.h"

static int failures, failure;
EXPORT void fake_fail(int n, int code) { failures = n, failure = code; }

static int fails(void) {
	if (failures == 0)
		return 0;
	failures--;
	return failure;
}

/* Addresses that are not in use: no two blocks overlap, and none is returned twice. */
static char *address(size_t bytes) {
	static char *next = (char *)0x100000000000;
	return __atomic_fetch_add(&next, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
}

static int give(void **out, size_t bytes) {
	int error = fails();
	if (error == 0 && bytes == 0)
		error = INVALID_VALUE;
	if (error == 0)
		*out = address(bytes);
	return error;
}

static int take(void *block) { return block == NULL ? INVALID_VALUE : 0; }

EXPORT int cuMemAlloc_v2(void **out, size_t n) { return give(out, n); }
EXPORT int cuMemAllocManaged(void **out, size_t n, unsigned flags) { return (void)flags, give(out, n); }
EXPORT int cuMemAllocAsync(void **out, size_t n, void *stream) { return (void)stream, give(out, n); }
EXPORT int cuMemAllocFromPoolAsync(void **out, size_t n, void *pool, void *stream) {
	return (void)pool, (void)stream, give(out, n);
}
EXPORT int cuMemAllocPitch_v2(void **out, size_t *pitch, size_t width, size_t height, unsigned element) {
	(void)element;
	int error = give(out, width * height);
	if (error == 0)
		*pitch = (width + 511) / 512 * 512;
	return error;
}
EXPORT int cuMemFree_v2(void *block) { return take(block); }
EXPORT int cuMemFreeAsync(void *block, void *stream) { return (void)stream, take(block); }
EXPORT int cuMemHostAlloc(void **out, size_t n, unsigned flags) { return (void)flags, give(out, n); }
EXPORT int cuMemAllocHost_v2(void **out, size_t n) { return cuMemHostAlloc(out, n, 0); }
EXPORT int cuMemFreeHost(void *block) { return take(block); }
EXPORT int cuMemHostRegister_v2(void *block, size_t n, unsigned flags) {
	return (void)block, (void)n, (void)flags, fails();
}
EXPORT int cuMemHostUnregister(void *block) { return (void)block, 0; }
EXPORT int cuArrayCreate_v2(void **out, const struct array *a) { return give(out, a->width); }
EXPORT int cuArray3DCreate_v2(void **out, const struct array3d *a) { return give(out, a->width); }
EXPORT int cuArrayDestroy(void *block) { return take(block); }
EXPORT int cuMipmappedArrayCreate(void **out, const struct array3d *a, unsigned levels) {
	return (void)levels, give(out, a->width);
}
EXPORT int cuMipmappedArrayDestroy(void *block) { return take(block); }
EXPORT int cuIpcOpenMemHandle_v2(void **out, struct ipc_handle handle, unsigned flags) {
	return (void)handle, (void)flags, give(out, 1);
}
EXPORT int cuIpcCloseMemHandle(void *block) { return take(block); }
EXPORT int cuMemPoolImportPointer(void **out, void *pool, void *data) {
	return (void)pool, (void)data, give(out, 1);
}
EXPORT int cuGraphAddMemAllocNode(void **node, void *graph, void **after, size_t n, struct node *params) {
	(void)node, (void)graph, (void)after, (void)n;
	return give(&params->pointer, params->bytes);
}
EXPORT int cuGraphAddMemFreeNode(void **node, void *graph, void **after, size_t n, void *block) {
	(void)node, (void)graph, (void)after, (void)n;
	return take(block);
}

/* Physical memory: handles that are numbers, and are soon reused. */
static uint64_t used_handles;
HIDDEN int create(uint64_t *handle, size_t n, const struct properties *p, uint64_t flags) {
	(void)n, (void)p, (void)flags;
	int error = fails();
	if (error)
		return error;
	unsigned bit = (unsigned)__builtin_ctzll(~used_handles);
	used_handles |= 1ull << bit;
	*handle = bit + 1;
	return 0;
}
HIDDEN int release(uint64_t handle) {
	used_handles &= ~(1ull << (handle - 1));
	return 0;
}
HIDDEN int map(void *at, size_t n, size_t offset, uint64_t handle, uint64_t flags) {
	return (void)at, (void)n, (void)offset, (void)handle, (void)flags, fails();
}
HIDDEN int unmap(void *at, size_t n) { return (void)at, (void)n, 0; }
/* Exported, but a lookup by name returns another function. */
EXPORT int cuMemCreate(uint64_t *handle, size_t n, const struct properties *p, uint64_t flags) {
	return create(handle, n, p, flags);
}
EXPORT int cuMemRelease(uint64_t handle) { return release(handle); }
EXPORT int cuMemMap(void *at, size_t n, size_t offset, uint64_t handle, uint64_t flags) {
	return map(at, n, offset, handle, flags);
}
EXPORT int cuMemUnmap(void *at, size_t n) { return unmap(at, n); }
EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *at) { return (void)at, *handle = 1, 0; }

static char contexts[8];
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &contexts[device], 0; }
EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device) {
	return (void)flags, *context = &contexts[device], 0;
}
EXPORT int cuCtxSetCurrent(void *context) { return (void)context, 0; }
EXPORT int cuCtxPushCurrent_v2(void *context) { return (void)context, 0; }
EXPORT int cuCtxPopCurrent_v2(void **context) { return *context = NULL, 0; }
EXPORT int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
	return (void)pool, (void)attribute, *(uint64_t *)value = 1 << 25, 0;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
	static const struct { const char *name; void *function; } own[] = {
	    {"cuMemCreate", create}, {"cuMemRelease", release}, {"cuMemMap", map}, {"cuMemUnmap", unmap},
	};
	(void)version, (void)flags, (void)status;
	*out = NULL;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!strcmp(name, own[i].name))
			return *out = own[i].function, 0;
	char exported[64];
	strcpy(exported, name);
	if (!(*out = dlsym(RTLD_DEFAULT, exported)))
		*out = dlsym(RTLD_DEFAULT, strcat(exported, "_v2"));
	return *out ? 0 : 500;
}
