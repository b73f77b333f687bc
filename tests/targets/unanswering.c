// A FUSE file system of user ARGV[2], mounted at ARGV[1]. It answers the first request and no other. With ARGV[3], it leaves
// only reads of files unanswered. With ARGV[4], it runs in a user namespace of its own, and mounts an overlay of itself
// on that folder.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int device;

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

static void answer(struct fuse_in_header *in, int error, const void *body, size_t size) {
    char out[1024];
    struct fuse_out_header head = {sizeof head + size, -error, in->unique};
    memcpy(out, &head, sizeof head);
    if (size > 0)
        memcpy(out + sizeof head, body, size);
    if (write(device, out, head.len) != head.len)
        perror("answer");
}

static void check(const char *what, int failed) {
    if (failed) {
        perror(what);
        exit(2);
    }
}

static void give(const char *file, const char *text) {
    int fd = open(file, O_WRONLY);
    check(file, write(fd, text, strlen(text)) < 0);
    close(fd);
}

// Returns in a child, the server. The parent mounts the overlay and waits; the server ends with the parent.
static void overlay(const char *layer, const char *folder) {
    char options[4096];
    pid_t server = fork();
    check("fork", server < 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    snprintf(options, sizeof options, "lowerdir=%s:%s", layer, folder);
    check("overlay", mount("overlay", folder, "overlay", 0, options));
    say("overlaid");
    waitpid(server, NULL, 0);
    exit(0);
}

int main(int argc, char **argv) {
    static char request[1 << 20];
    char options[200];
    if (argc > 4) {
        // FUSE accepts only a device that was opened in the mount's user namespace.
        check("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS));
        give("/proc/self/uid_map", "0 0 1");
        give("/proc/self/setgroups", "deny");
        give("/proc/self/gid_map", "0 0 1");
        check("private", mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    }
    device = open("/dev/fuse", O_RDWR);
    if (argc < 3 || device < 0) {
        perror("/dev/fuse");
        return 2;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%s,group_id=%s,allow_other", device, argv[2],
             argv[2]);
    if (mount("unanswering", argv[1], "fuse", 0, options) != 0) {
        perror("mount");
        return 2;
    }
    if (argc > 4)
        overlay(argv[1], argv[4]);
    struct fuse_attr folder = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 1};
    struct fuse_attr file = {.ino = 2, .size = 1 << 20, .mode = S_IFREG | 0644, .nlink = 1};
    while (read(device, request, sizeof request) > 0) {
        struct fuse_in_header *in = (void *)request;
        struct fuse_init_out init = {.major = 7, .minor = 31};
        struct fuse_entry_out entry = {.nodeid = 2, .attr = file, .attr_valid = 1000, .entry_valid = 1000};
        struct fuse_attr_out attributes = {.attr_valid = 1000, .attr = in->nodeid == 1 ? folder : file};
        struct fuse_open_out opened = {.fh = 1};
        struct fuse_statfs_out about = {.st = {.blocks = 1000, .bsize = 4096, .namelen = 255}};
        if (in->opcode == FUSE_INIT) {
            answer(in, 0, &init, sizeof init);
            say("ready");
        } else if (argc == 3 || in->opcode == FUSE_READ) {
            say("asked");
        } else if (in->opcode == FUSE_LOOKUP) {
            answer(in, 0, &entry, sizeof entry);
        } else if (in->opcode == FUSE_GETATTR) {
            answer(in, 0, &attributes, sizeof attributes);
        } else if (in->opcode == FUSE_STATFS) {
            answer(in, 0, &about, sizeof about);
        } else if (in->opcode == FUSE_OPEN) {
            answer(in, 0, &opened, sizeof opened);
        } else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT) {
            answer(in, ENOSYS, NULL, 0);
        }
    }
    return 0;
}
