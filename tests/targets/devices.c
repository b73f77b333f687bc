/* Calls every function that allocates or frees device memory, on the libraries
 * of fakecuda/, a known number of times, with errors and in threads.
 *
 *   devices TRUTH FOLDER         work, say "done" and the devices' sums, await a byte
 *
 * The first word of a site's name is the layer that its blocks belong to; memory
 * that the runtime requests from the driver is in the driver's layer too, at the same site. */
#include "site.h"
#include "../fakecuda/fake.h"
#include <pthread.h>

static void *driver_library, *runtime_library, *torch_library, *cpu_library;

static void *function(void *library, const char *name) {
	void *found = dlsym(library, name);
	if (!found)
		fail(name);
	return found;
}
/* Calls of a function by name: `CALL(runtime_library, "cudaFree")(block)`. */
#define CALL(library, name) ((int (*)())function(library, name))
#define CUDA(name) CALL(runtime_library, name)
#define CU(name) CALL(driver_library, name)

static void *given(int error, void *p) { return error ? NULL : p; }

/* Out-pointer first, then the rest. */
#define GIVES(call, ...) ({ void *p_ = NULL; int error_ = call(&p_, ##__VA_ARGS__); given(error_, p_); })

static struct channels floats = {32, 32, 0, 0, 2}, bytes = {8, 8, 8, 8, 1};
static struct ipc_handle ipc;

static void *pitched(size_t width, size_t height) {
	size_t pitch;
	return GIVES(CUDA("cudaMallocPitch"), &pitch, width, height);
}
static void *cu_pitched(size_t width, size_t height) {
	size_t pitch;
	return GIVES(CU("cuMemAllocPitch_v2"), &pitch, width, height, 4u);
}
static void *volume(size_t width, size_t height) {
	struct pitched p;
	struct extent e = {width, height, 3};
	int error = CUDA("cudaMalloc3D")(&p, e);
	return given(error, p.pointer);
}
static void *array3d(size_t width, size_t height) {
	struct extent e = {width, height, 5};
	return GIVES(CUDA("cudaMalloc3DArray"), &bytes, e, 0u);
}
static void *mipmapped(size_t width, size_t height) {
	struct extent e = {width, height, 0};
	return GIVES(CUDA("cudaMallocMipmappedArray"), &floats, e, 3u, 0u);
}
static void *cu_array(size_t width, size_t height) {
	struct array a = {width, height, 0x10, 2}; /* half */
	return GIVES(CU("cuArrayCreate_v2"), &a);
}
static void *cu_array3d(size_t width, size_t height) {
	struct array3d a = {width, height, 2, 0x20, 4, 0}; /* float */
	return GIVES(CU("cuArray3DCreate_v2"), &a);
}
static void *cu_mipmapped(size_t width, size_t height) {
	struct array3d a = {width, height, 0, 0x08, 1, 0}; /* signed char */
	return GIVES(CU("cuMipmappedArrayCreate"), &a, 2u);
}
static void *node(void *library, const char *name, size_t n) {
	struct node params = {.bytes = n};
	void *graph_node;
	int error = CALL(library, name)(&graph_node, NULL, NULL, (size_t)0, &params);
	return given(error, params.pointer);
}
static void *registered(void *library, const char *name, void *p, size_t n) {
	return given(CALL(library, name)(p, n, 0u), p);
}
static void *physical(size_t n, int device) {
	struct properties p = {1, 0, 1, device};
	uint64_t handle;
	return CU("cuMemCreate")(&handle, n, &p, (uint64_t)0) ? NULL : (void *)handle;
}
static void *torch(size_t n, int device) {
	return ((void *(*)(size_t, int))function(torch_library, "torch_malloc"))(n, device);
}
static void *torch_async(size_t n) {
	return ((void *(*)(size_t))function(torch_library, "torch_malloc_async"))(n);
}
static void *cpu(size_t n) {
	return ((void *(*)(size_t))function(cpu_library, "_ZN3c109alloc_cpuEm"))(n);
}

SITE(runtime_malloc, GIVES(CUDA("cudaMalloc"), a))
SITE(runtime_malloc_failing, GIVES(CUDA("cudaMalloc"), a))
SITE(runtime_managed, GIVES(CUDA("cudaMallocManaged"), a, 1u))
SITE(runtime_async, GIVES(CUDA("cudaMallocAsync"), a, p))
SITE(runtime_pool, GIVES(CUDA("cudaMallocFromPoolAsync"), a, p, p))
SITE(runtime_pitch, pitched(a, b))
SITE(runtime_pitch_failing, pitched(a, b))
SITE(runtime_3d, volume(a, b))
SITE(runtime_array, GIVES(CUDA("cudaMallocArray"), &floats, a, b, 0u))
SITE(runtime_array3d, array3d(a, b))
SITE(runtime_mipmapped, mipmapped(a, b))
SITE(runtime_ipc, GIVES(CUDA("cudaIpcOpenMemHandle"), ipc, 1u))
SITE(runtime_import, GIVES(CUDA("cudaMemPoolImportPointer"), p, p))
SITE(runtime_node, node(runtime_library, "cudaGraphAddMemAllocNode", a))
SITE(runtime_thread, GIVES(CUDA("cudaMalloc"), a))
SITE(driver_malloc, GIVES(CU("cuMemAlloc_v2"), a))
SITE(driver_malloc_failing, GIVES(CU("cuMemAlloc_v2"), a))
SITE(driver_managed, GIVES(CU("cuMemAllocManaged"), a, 1u))
SITE(driver_async, GIVES(CU("cuMemAllocAsync"), a, p))
SITE(driver_pool, GIVES(CU("cuMemAllocFromPoolAsync"), a, p, p))
SITE(driver_pitch, cu_pitched(a, b))
SITE(driver_array, cu_array(a, b))
SITE(driver_array3d, cu_array3d(a, b))
SITE(driver_mipmapped, cu_mipmapped(a, b))
SITE(driver_ipc, GIVES(CU("cuIpcOpenMemHandle_v2"), ipc, 1u))
SITE(driver_import, GIVES(CU("cuMemPoolImportPointer"), p, p))
SITE(driver_node, node(driver_library, "cuGraphAddMemAllocNode", a))
SITE(driver_physical, physical(a, (int)b))
SITE(pinned_host_alloc, GIVES(CUDA("cudaHostAlloc"), a, 0u))
SITE(pinned_malloc_host, GIVES(CUDA("cudaMallocHost"), a))
SITE(pinned_register, registered(runtime_library, "cudaHostRegister", p, a))
SITE(pinned_cu_host_alloc, GIVES(CU("cuMemHostAlloc"), a, 0u))
SITE(pinned_cu_alloc_host, GIVES(CU("cuMemAllocHost_v2"), a))
SITE(pinned_cu_register, registered(driver_library, "cuMemHostRegister_v2", p, a))
SITE(pinned_failing, GIVES(CUDA("cudaHostAlloc"), a, 0u))
SITE(torch_block, torch(a, (int)b))
SITE(torch_too_large, torch(a, (int)b))
SITE(torch_async, torch_async(a))
SITE(cpu_tensor, cpu(a))

/* `count` blocks; every third is released by `release`. */
#define SOME(name, a, b, size, count, release)                                                     \
	for (int i_ = 0; i_ < (count); i_++) {                                                     \
		struct block block = ALLOCATE(name, NULL, a, b, size);                             \
		if (!block.p)                                                                      \
			fail(#name);                                                               \
		if (i_ % 3 == 0) {                                                                 \
			void *p = give(&block);                                                    \
			if (release)                                                               \
				fail(#name ", released");                                          \
		}                                                                                  \
	}

static size_t rows(size_t width) { return (width + 511) / 512 * 512; }

static void runtime(void) {
	SOME(runtime_malloc, 1000 + i_, 0, 1000 + i_, 10, CUDA("cudaFree")(p))
	SOME(runtime_managed, 2000, 0, 2000, 4, CUDA("cudaFree")(p))
	SOME(runtime_async, 3000, 0, 3000, 5, CUDA("cudaFreeAsync")(p, NULL))
	SOME(runtime_pool, 4000, 0, 4000, 3, CUDA("cudaFreeAsync")(p, NULL))
	SOME(runtime_pitch, 700, 9, rows(700) * 9, 4, CUDA("cudaFree")(p))
	SOME(runtime_3d, 100, 7, rows(100) * 7 * 3, 4, CUDA("cudaFree")(p))
	SOME(runtime_array, 30, 4, 30 * 4 * 8, 4, CUDA("cudaFreeArray")(p))
	SOME(runtime_array, 30, 0, 30 * 8, 1, CUDA("cudaFreeArray")(p))
	SOME(runtime_array3d, 10, 6, 10 * 6 * 5 * 4, 4, CUDA("cudaFreeArray")(p))
	SOME(runtime_mipmapped, 64, 4, (64 * 4 + 32 * 2 + 16) * 8, 4, CUDA("cudaFreeMipmappedArray")(p))
	SOME(runtime_ipc, 0, 0, 0, 2, CUDA("cudaIpcCloseMemHandle")(p))
	SOME(runtime_import, 0, 0, 0, 2, CUDA("cudaFreeAsync")(p, NULL))
	SOME(runtime_node, 5000, 0, 5000, 4, CUDA("cudaGraphAddMemFreeNode")(NULL, NULL, NULL, (size_t)0, p))
	void *nothing = &nothing;
	if (CUDA("cudaMalloc")(&nothing, (size_t)0) || nothing)
		fail("cudaMalloc of nothing");
	CUDA("cudaFree")(NULL);
	void *pool;
	CUDA("cudaMemPoolCreate")(&pool, NULL);
	CUDA("cudaMemPoolTrimTo")(pool, (size_t)0);
	CUDA("cudaMemPoolDestroy")(pool);
}

static void driver(void) {
	SOME(driver_malloc, 1100, 0, 1100, 10, CU("cuMemFree_v2")(p))
	SOME(driver_managed, 2100, 0, 2100, 4, CU("cuMemFree_v2")(p))
	SOME(driver_async, 3100, 0, 3100, 4, CU("cuMemFreeAsync")(p, NULL))
	SOME(driver_pool, 4100, 0, 4100, 4, CU("cuMemFreeAsync")(p, NULL))
	SOME(driver_pitch, 600, 2, rows(600) * 2, 4, CU("cuMemFree_v2")(p))
	SOME(driver_array, 50, 3, 50 * 3 * 4, 4, CU("cuArrayDestroy")(p))
	SOME(driver_array3d, 20, 3, 20 * 3 * 2 * 16, 4, CU("cuArrayDestroy")(p))
	SOME(driver_mipmapped, 64, 8, 64 * 8 + 32 * 4, 4, CU("cuMipmappedArrayDestroy")(p))
	SOME(driver_ipc, 0, 0, 0, 2, CU("cuIpcCloseMemHandle")(p))
	SOME(driver_import, 0, 0, 0, 2, CU("cuMemFreeAsync")(p, NULL))
	SOME(driver_node, 5100, 0, 5100, 4, CU("cuGraphAddMemFreeNode")(NULL, NULL, NULL, (size_t)0, p))

	/* Physical memory outlives its handle while it is mapped, and the handle is reused. */
	static char range[8][4096];
	struct block kept = ALLOCATE(driver_physical, NULL, 8192, 1, 8192);
	uint64_t handle = (uint64_t)kept.p, other;
	CU("cuMemMap")(range[0], (size_t)4096, (size_t)0, handle, (uint64_t)0);
	CU("cuMemMap")(range[1], (size_t)4096, (size_t)4096, handle, (uint64_t)0);
	CU("cuMemRelease")(handle);
	struct block second = ALLOCATE(driver_physical, NULL, 4096, 1, 4096);
	other = (uint64_t)second.p;
	if (other != handle)
		fail("a handle given again");
	CU("cuMemUnmap")(range[0], (size_t)4096);
	give(&second);
	CU("cuMemRelease")(other); /* never mapped */
	struct block gone = ALLOCATE(driver_physical, NULL, 4096, 0, 4096);
	handle = (uint64_t)gone.p;
	CU("cuMemMap")(range[2], (size_t)4096, (size_t)0, handle, (uint64_t)0);
	give(&gone);
	CU("cuMemUnmap")(range[2], (size_t)4096);
	CU("cuMemRelease")(handle);
}

static void pinned(void) {
	static char own[4][8192];
	SOME(pinned_host_alloc, 10000, 0, 10000, 7, CUDA("cudaFreeHost")(p))
	SOME(pinned_malloc_host, 20000, 0, 20000, 4, CUDA("cudaFreeHost")(p))
	SOME(pinned_cu_host_alloc, 30000, 0, 30000, 4, CU("cuMemFreeHost")(p))
	SOME(pinned_cu_alloc_host, 40000, 0, 40000, 4, CU("cuMemFreeHost")(p))
	struct block a = ALLOCATE(pinned_register, own[0], 8192, 0, 8192);
	struct block b = ALLOCATE(pinned_register, own[1], 4096, 0, 4096);
	struct block c = ALLOCATE(pinned_cu_register, own[2], 8192, 0, 8192);
	ALLOCATE(pinned_cu_register, own[3], 100, 0, 100);
	CUDA("cudaHostUnregister")(give(&a));
	CU("cuMemHostUnregister")(give(&c));
	(void)b;
}

static void fail_next(int n, int code) { ((void (*)(int, int))function(driver_library, "fake_fail"))(n, code); }

static void must_fail(void *p) {
	if (p)
		fail("a call that must fail succeeded; the test");
}

static void errors(void) {
	fail_next(3, OUT_OF_MEMORY);
	for (int i = 0; i < 3; i++)
		must_fail(site_runtime_malloc_failing(NULL, 123456, 0));
	fail_next(1, OUT_OF_MEMORY);
	must_fail(site_driver_malloc_failing(NULL, 654321, 0));
	fail_next(1, OUT_OF_MEMORY);
	must_fail(site_pinned_failing(NULL, 777, 0));
	fail_next(1, 700);
	must_fail(site_runtime_pitch_failing(NULL, 300, 10));
	fail_next(1, INVALID_VALUE);
	static char own[1];
	must_fail(site_pinned_register(own, 1, 0));
}

enum { THREADS = 4, PER_THREAD = 300 };
static struct block crossing[THREADS][PER_THREAD];

static void *thread(void *argument) {
	long me = (long)argument;
	CUDA("cudaSetDevice")((int)(me % 2));
	for (int i = 0; i < PER_THREAD; i++) {
		crossing[me][i] = ALLOCATE(runtime_thread, NULL, 100 + i, 0, 100 + i);
		if (i % 2)
			CUDA("cudaFree")(give(&crossing[me][i]));
	}
	return NULL;
}

static void threads(void) {
	pthread_t ids[THREADS];
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, thread, (void *)i))
			fail("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int j = 0; j < PER_THREAD; j += 10)
			CUDA("cudaFree")(give(&crossing[i][j]));
}

static void pytorch(void) {
	void (*release)(void *, size_t, int) = (void (*)(void *, size_t, int))function(torch_library, "torch_free");
	void (*release_async)(void *) = (void (*)(void *))function(torch_library, "torch_free_async");
	void (*empty)(int) = (void (*)(int))function(torch_library, "torch_empty_cache");
	struct block blocks[40];
	for (int i = 0; i < 40; i++)
		blocks[i] = ALLOCATE(torch_block, NULL, 100000, i % 2, 100352);
	for (int i = 0; i < 40; i += 2)
		release(give(&blocks[i]), 100000, 0);
	must_fail(site_torch_too_large(NULL, 100 << 20, 1));
	empty(0); /* and nothing is reported after it */
	for (int i = 0; i < 6; i++) {
		struct block b = ALLOCATE(torch_async, NULL, 5000, 0, 5000);
		if (i % 2)
			release_async(give(&b));
	}
	struct block tensors[9];
	for (int i = 0; i < 9; i++)
		tensors[i] = ALLOCATE(cpu_tensor, NULL, 4000 + i, 0, 4000 + i);
	for (int i = 0; i < 4; i++)
		((void (*)(void *))function(cpu_library, "_ZN3c108free_cpuEPv"))(give(&tensors[i]));
	must_fail(cpu(0));
	if (!((void *(*)(size_t, int))function(torch_library, "torch_expand"))(6 << 20, 1))
		fail("torch_expand");
	((void (*)(size_t, int))function(torch_library, "torch_shrink"))(2 << 20, 1);
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 96;
	driver_library = load_library(argv[2], "libcuda.so.1");
	runtime_library = load_library(argv[2], "libcudart.so.13");
	cpu_library = load_library(argv[2], "libc10.so");
	torch_library = load_library(argv[2], "libc10_cuda.so");
	runtime();
	driver();
	pinned();
	errors();
	threads();
	CUDA("cudaSetDevice")(0);
	pytorch();
	write_truth(argv[1]);
	char line[256];
	size_t sums[4];
	for (int device = 0; device < 2; device++)
		((void (*)(int, size_t *, size_t *))function(torch_library, "torch_sums"))(
		    device, &sums[device * 2], &sums[device * 2 + 1]);
	snprintf(line, sizeof line, "done [%zu,%zu,%zu,%zu]\n", sums[0], sums[1], sums[2], sums[3]);
	say(line);
	await_byte();
	return 0;
}
