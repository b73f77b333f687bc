/* The runtime: asks the driver for everything, by its exported functions. */
#include "fake.h"

extern int cuMemAlloc_v2(void **, size_t), cuMemAllocManaged(void **, size_t, unsigned),
    cuMemAllocAsync(void **, size_t, void *), cuMemAllocFromPoolAsync(void **, size_t, void *, void *),
    cuMemAllocPitch_v2(void **, size_t *, size_t, size_t, unsigned), cuMemFree_v2(void *),
    cuMemFreeAsync(void *, void *), cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *),
    cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *),
    cuArrayCreate_v2(void **, const struct array *), cuArray3DCreate_v2(void **, const struct array3d *),
    cuArrayDestroy(void *), cuMipmappedArrayCreate(void **, const struct array3d *, unsigned),
    cuMipmappedArrayDestroy(void *), cuIpcOpenMemHandle_v2(void **, struct ipc_handle, unsigned),
    cuIpcCloseMemHandle(void *), cuMemPoolImportPointer(void **, void *, void *),
    cuGraphAddMemAllocNode(void **, void *, void **, size_t, struct node *),
    cuGraphAddMemFreeNode(void **, void *, void **, size_t, void *),
    cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *),
    cuMemPoolGetAttribute(void *, int, void *);

/* CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_UNSIGNED_INT8 by the bits of the first channel. */
static unsigned format(const struct channels *c) { return c->x == 32 ? 0x20 : 0x01; }
static unsigned count(const struct channels *c) { return !!c->x + !!c->y + !!c->z + !!c->w; }

EXPORT int cudaMalloc(void **out, size_t n) { return n ? cuMemAlloc_v2(out, n) : (*out = NULL, 0); }
EXPORT int cudaMallocManaged(void **out, size_t n, unsigned flags) { return cuMemAllocManaged(out, n, flags); }
EXPORT int cudaMallocAsync(void **out, size_t n, void *stream) { return cuMemAllocAsync(out, n, stream); }
EXPORT int cudaMallocFromPoolAsync(void **out, size_t n, void *pool, void *stream) {
	return cuMemAllocFromPoolAsync(out, n, pool, stream);
}
EXPORT int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
	return cuMemAllocPitch_v2(out, pitch, width, height, 4);
}
EXPORT int cudaMalloc3D(struct pitched *p, struct extent e) {
	return cuMemAllocPitch_v2(&p->pointer, &p->pitch, e.width, e.height * e.depth, 4);
}
EXPORT int cudaMallocArray(void **out, const struct channels *c, size_t width, size_t height, unsigned flags) {
	struct array a = {width, height, format(c), count(c)};
	return (void)flags, cuArrayCreate_v2(out, &a);
}
EXPORT int cudaMalloc3DArray(void **out, const struct channels *c, struct extent e, unsigned flags) {
	struct array3d a = {e.width, e.height, e.depth, format(c), count(c), flags};
	return cuArray3DCreate_v2(out, &a);
}
EXPORT int cudaMallocMipmappedArray(void **out, const struct channels *c, struct extent e, unsigned levels,
				    unsigned flags) {
	struct array3d a = {e.width, e.height, e.depth, format(c), count(c), flags};
	return cuMipmappedArrayCreate(out, &a, levels);
}
EXPORT int cudaFree(void *block) { return block ? cuMemFree_v2(block) : 0; }
EXPORT int cudaFreeAsync(void *block, void *stream) { return cuMemFreeAsync(block, stream); }
EXPORT int cudaFreeArray(void *array) { return cuArrayDestroy(array); }
EXPORT int cudaFreeMipmappedArray(void *array) { return cuMipmappedArrayDestroy(array); }
EXPORT int cudaHostAlloc(void **out, size_t n, unsigned flags) { return cuMemHostAlloc(out, n, flags); }
EXPORT int cudaMallocHost(void **out, size_t n) { return cudaHostAlloc(out, n, 0); }
EXPORT int cudaFreeHost(void *block) { return cuMemFreeHost(block); }
EXPORT int cudaHostRegister(void *block, size_t n, unsigned flags) { return cuMemHostRegister_v2(block, n, flags); }
EXPORT int cudaHostUnregister(void *block) { return cuMemHostUnregister(block); }
EXPORT int cudaIpcOpenMemHandle(void **out, struct ipc_handle handle, unsigned flags) {
	return cuIpcOpenMemHandle_v2(out, handle, flags);
}
EXPORT int cudaIpcCloseMemHandle(void *block) { return cuIpcCloseMemHandle(block); }
EXPORT int cudaMemPoolImportPointer(void **out, void *pool, void *data) {
	return cuMemPoolImportPointer(out, pool, data);
}
EXPORT int cudaGraphAddMemAllocNode(void **node, void *graph, void **after, size_t n, struct node *params) {
	return cuGraphAddMemAllocNode(node, graph, after, n, params);
}
EXPORT int cudaGraphAddMemFreeNode(void **node, void *graph, void **after, size_t n, void *block) {
	return cuGraphAddMemFreeNode(node, graph, after, n, block);
}
EXPORT int cudaMemPoolCreate(void **pool, const void *properties) { return (void)properties, *pool = &pool, 0; }
EXPORT int cudaMemPoolDestroy(void *pool) { return (void)pool, 0; }
EXPORT int cudaMemPoolTrimTo(void *pool, size_t n) { return (void)pool, (void)n, 0; }
EXPORT int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) {
	return cuMemPoolGetAttribute(pool, attribute, value);
}
static __thread int current;
EXPORT int cudaSetDevice(int device) { return device < 0 || device > 7 ? 101 : (current = device, 0); }
EXPORT int cudaGetDevice(int *device) { return *device = current, 0; }
EXPORT int cudaGetDriverEntryPoint(const char *name, void **out, uint64_t flags, int *status) {
	return cuGetProcAddress_v2(name, out, 12000, flags, status);
}
