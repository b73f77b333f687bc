/* How a program ends by a signal.
 *
 *   signals handle   say "ready"; at SIGINT end with status 42
 *   signals die      say "ready" and await a signal that kills it
 */
#include "site.h"
#include <signal.h>

static void handle(int signal) { _exit(signal == SIGINT ? 42 : 43); }

int main(int argc, char **argv) {
	if (argc != 2)
		return 96;
	/* A shell without job control starts background jobs with SIGINT ignored. */
	signal(SIGINT, strcmp(argv[1], "handle") ? SIG_DFL : handle);
	say("ready\n");
	for (;;)
		pause();
}
