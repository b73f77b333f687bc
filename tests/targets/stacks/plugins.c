/* A library that comes and goes. */
#include "probe.h"
#include <dlfcn.h>
#include <stddef.h>

extern const char *plugin_path;

OUT_OF_LINE static void load_and_run(const char *function) {
	void *plugin = dlopen(plugin_path, RTLD_LAZY);
	if (!plugin)
		broken(dlerror());
	void (*run)(void) = (void (*)(void))dlsym(plugin, function);
	if (!run)
		broken(dlerror());
	run();
	dlclose(plugin);
	BARRIER();
}

enum { TIMES = 3 };

void case_plugin(void) {
	for (int i = 0; i < TIMES; i++) {
		load_and_run("plugin_run");
		BARRIER();
	}
}

void case_resolver(void) {
	for (int i = 0; i < TIMES; i++) {
		load_and_run("plugin_run_lazily");
		BARRIER();
	}
}
