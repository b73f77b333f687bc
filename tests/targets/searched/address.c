// For Node: `address(buffer)` is where the bytes of a Buffer are. The functions of Node-API (js_native_api.h) are declared
// here, so that nothing has to be installed.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct napi_env *napi_env;
typedef struct napi_value *napi_value;
typedef struct napi_callback_info *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);

int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_create_string_utf8(napi_env, const char *, size_t, napi_value *);
int napi_get_buffer_info(napi_env, napi_value, void **, size_t *);
int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);

static napi_value address(napi_env env, napi_callback_info info) {
	napi_value buffer, text = NULL;
	size_t count = 1, size;
	void *data;
	char digits[32];
	if (napi_get_cb_info(env, info, &count, &buffer, NULL, NULL) || napi_get_buffer_info(env, buffer, &data, &size))
		return NULL;
	int length = snprintf(digits, sizeof digits, "%p", data);
	napi_create_string_utf8(env, digits, length, &text);
	return text;
}

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
	napi_value function = exports;
	napi_create_function(env, "address", SIZE_MAX, address, NULL, &function);
	return function;
}
