/* A device without hardware, for tests: memory is addresses, contents do not
 * exist. The functions have the arguments of NVIDIA's (CUDA's public API
 * reference) and PyTorch's, as far as a tracer can see them; they only
 * allocate and release. */
#ifndef FAKE_H
#define FAKE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"), noipa))
#define HIDDEN __attribute__((noipa)) static
#define OUT_OF_MEMORY 2
#define INVALID_VALUE 1

/* Structures of cuda.h and driver_types.h. */
struct extent { size_t width, height, depth; };
struct pitched { void *pointer; size_t pitch, width, height; };
struct channels { int x, y, z, w, kind; };
struct array { size_t width, height; unsigned format, channels; };
struct array3d { size_t width, height, depth; unsigned format, channels, flags; };
struct properties { int type, handle_types, location_type, location_id; };
struct ipc_handle { char bytes[64]; };
struct node {
	char pool[88];
	const void *access;
	size_t n_access, bytes;
	void *pointer;
};
#endif
