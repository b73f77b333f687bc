/* Every case, by the file that has it. */
#ifdef __x86_64__
#define X86_CASES(X) X(fault_at_first_instruction) X(fault_in_prologue) X(own_contexts)
#else
#define X86_CASES(X)
#endif
#define C_CASES(X)                                                                                 \
	/* frames.c */                                                                             \
	X(nested) X(recursion) X(very_deep) X(on_stack) X(variable_array) X(realigned)               \
	X(realigned_with_alloca) X(realigned_entry) X(stack_arguments) X(tail_call) X(no_return)   \
	X(cold_part) X(large_frame)                                                                \
	/* callbacks.c */                                                                          \
	X(qsort) X(qsort_in_qsort) X(bsearch) X(longjmp_from_qsort) X(once) X(threads)             \
	X(thread_end)                                                                              \
	/* signals.c */                                                                            \
	X(signal) X(signal_on_own_stack) X(signal_in_signal) X(longjmp_from_signal) X86_CASES(X)   \
	/* contexts.c */                                                                           \
	X(coroutine) X(vfork)                                                                      \
	/* ways.c */                                                                               \
	X(ways)
/* cpp.cc */
#define CPP_CASES(X)                                                                               \
	X(sort) X(exception) X(exception_rethrown) X(vector_growth) X(operator_new)                \
	X(virtual_thunk) X(function_object) X(initialiser)
/* plugins.c */
#ifdef __ARM_FEATURE_PAC_DEFAULT
/* libgcc's unwinder authenticates return addresses, and ends the program where glibc 2.36's call frame information of the
 * dynamic linker's trampoline leads it to another word. */
#define PLUGIN_CASES(X) X(plugin)
#else
#define PLUGIN_CASES(X) X(plugin) X(resolver)
#endif
