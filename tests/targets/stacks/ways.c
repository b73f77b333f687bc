/* Every way to allocate, from one place. */
#include "probe.h"

OUT_OF_LINE static void allocates(enum way way) {
	probe(way, "allocates<*" IN(ways));
	BARRIER();
}
void case_ways(void) {
	for (enum way way = MALLOC; way < WAYS; way++) {
#ifndef __GLIBC__
		/* musl refuses sbrk, chooses itself which sizes to map, and has no
		 * call frame information for its mmap. */
		if (way >= MAP)
			continue;
#endif
		if (way != OPERATOR_NEW)
			allocates(way);
	}
	BARRIER();
}
