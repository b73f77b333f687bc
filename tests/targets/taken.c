/* 500 blocks by malloc, of which it frees 200, and 300 by calloc. With the arguments `probe SEMAPHORE` it is another tracer: it
 * probes its own malloc and calloc with this semaphore (ref_ctr_offset), as bcc's memleak does, until its standard input
 * ends. Linked statically, it has an allocator of its own. */
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char __executable_start;

static int event_type(void) {
	int type;
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	return file && fscanf(file, "%d", &type) == 1 ? type : -1;
}

/* A program that does nothing. */
static int program(void) {
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_KPROBE,
		.insns = (unsigned long)code,
		.insn_cnt = 2,
		.license = (unsigned long)"GPL",
	};
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
}

static int probe(unsigned long semaphore) {
	void *functions[] = { malloc, calloc };
	int program_fd = program();
	for (int n = 0; n < 2; n++) {
		struct perf_event_attr event = {
			.type = event_type(),
			.size = sizeof event,
			.config = semaphore << 32,
			.uprobe_path = (unsigned long)"/proc/self/exe",
			.probe_offset = (unsigned long)functions[n] - (unsigned long)&__executable_start,
		};
		int fd = syscall(SYS_perf_event_open, &event, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, program_fd))
			return 2;
	}
	puts("probed");
	fflush(stdout);
	return getchar() != EOF;
}

int main(int argc, char **argv) {
	if (argc > 2 && !strcmp(argv[1], "probe"))
		return probe(strtoul(argv[2], NULL, 0));
	void *blocks[500];
	for (int n = 0; n < 500; n++)
		*(volatile char *)(blocks[n] = malloc(10)) = 1;
	for (int n = 0; n < 300; n++)
		*(volatile char *)calloc(2, 10) = 1;
	for (int n = 0; n < 200; n++)
		free(blocks[n]);
	return 0;
}
