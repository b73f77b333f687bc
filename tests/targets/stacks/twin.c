/* One of two libraries with the same functions at the same places, under
 * different names and with frames of different sizes. Loaded as TWIN=one or
 * TWIN=two. */
#include "probe.h"
#include <stdlib.h>

#define JOINED(twin, name) twin##_##name
#define EXPANDED(twin, name) JOINED(twin, name)
#define NAME(name) EXPANDED(TWIN, name)

/* Both sizes are encoded in as many bytes. */
enum { one = 200, two = 1000 };

OUT_OF_LINE static void NAME(inner)(size_t size) {
	char space[TWIN];
	KEEP(space);
	void *p = malloc(size);
	KEEP(p);
	free(p);
	KEEP(space);
}
OUT_OF_LINE static void NAME(outer)(size_t size) {
	char space[2 * TWIN];
	KEEP(space);
	NAME(inner)(size);
	KEEP(space);
}
void twin_run(size_t size) {
	NAME(outer)(size);
	BARRIER();
}
