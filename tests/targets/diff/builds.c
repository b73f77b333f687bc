/* One library, built twice: with LEAKY it keeps its buffers. */
#include "../site.h"

OUT_OF_LINE static void *open_session(void) {
#ifdef LEAKY
	/* Code of another build is elsewhere. */
	for (volatile int i = 0; i < 3; i++)
		BARRIER();
#endif
	void *session = malloc(1000);
	BARRIER();
	return session;
}

void step(void) {
	void *session = open_session();
#ifndef LEAKY
	free(session);
#else
	(void)session;
#endif
}
