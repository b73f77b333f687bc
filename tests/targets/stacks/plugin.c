/* The library: its allocations are its loader's. */
#include "probe.h"

static __attribute__((constructor)) void plugin_constructor(void) {
	probe(MALLOC, "plugin_constructor<*<load_and_run<*<main<*");
	BARRIER();
}
static __attribute__((destructor)) void plugin_destructor(void) {
	probe(MALLOC, "plugin_destructor<*<load_and_run<*<main<*");
	BARRIER();
}

OUT_OF_LINE static void plugin_inner(int depth) {
	if (depth)
		plugin_inner(depth - 1);
	else
		probe(MALLOC, "plugin_inner<plugin_inner<plugin_run<*" IN(plugin));
	BARRIER();
}
void plugin_run(void) {
	plugin_inner(1);
	BARRIER();
}

/* Chosen at the first call, by the dynamic linker's trampoline. The resolver's
 * code has the name of the resolved function too. */
static void chosen(void) {
	PROBE("chosen<plugin_run_lazily<*", resolver);
	BARRIER();
}
static __attribute__((used)) OUT_OF_LINE void (*plugin_resolver(void))(void) {
	PROBE("*<plugin_run_lazily<*", resolver);
	return chosen;
}
void plugin_lazy(void) __attribute__((ifunc("plugin_resolver")));
void plugin_run_lazily(void) {
	plugin_lazy();
	BARRIER();
}
