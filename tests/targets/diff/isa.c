/* Keeps its buffers where AVX2 is not used. GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2 switches it off:
 * glibc then reports it as missing, although the processor has it. */
#include "../site.h"
#include <sys/platform/x86.h>

OUT_OF_LINE static void *scale_avx2(void) {
	void *buffer = malloc(1000);
	BARRIER();
	return buffer;
}

OUT_OF_LINE static void *scale_sse2(void) {
	void *buffer = malloc(1000);
	BARRIER();
	return buffer;
}

void step(void) {
	if (CPU_FEATURE_ACTIVE(AVX2))
		free(scale_avx2());
	else
		scale_sse2();
}
