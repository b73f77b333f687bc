/* Leaks 50 blocks of 100 bytes, with as many sleeping threads beside the first one as the argument says. For LeakSanitizer,
 * whose tracer attaches to every thread at the end of the program. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *sleeps(void *unused) {
	for (;;)
		pause();
	return unused;
}

__attribute__((noinline)) static void leak(void) {
	for (int n = 0; n < 50; n++)
		*(volatile char *)malloc(100) = 1;
}

int main(int argc, char **argv) {
	for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, sleeps, NULL))
			return 99;
	}
	leak();
	/* No copy of a pointer stays on the stack. */
	char over[4096];
	memset(over, 0, sizeof over);
	return ((volatile char *)over)[7];
}
