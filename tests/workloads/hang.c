// hang DIRECTORY PROGRAM: a file system with one file, prog, that has the bytes of PROGRAM. From SIGUSR1 on it takes
// requests and answers none, as one does whose server is gone. Speaks to /dev/fuse itself: no library is needed.
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROG = 2 };

static volatile sig_atomic_t silent;
static const char *directory;
static struct stat backing;
static int device, file;

static void be_silent(int signal) {
    (void)signal;
    silent = 1;
}

static void end(int signal) {
    (void)signal;
    umount2(directory, MNT_DETACH);
    _exit(0);
}

static void answer(uint64_t unique, int error, const void *data, size_t size) {
    static char out[sizeof(struct fuse_out_header) + (1 << 17)];
    struct fuse_out_header head = {.len = sizeof(head) + size, .error = -error, .unique = unique};

    memcpy(out, &head, sizeof(head));
    if (size)
        memcpy(out + sizeof(head), data, size);
    if (write(device, out, head.len) < 0 && errno != ENOENT)
        perror("hang: answer");
}

static struct fuse_attr attributes(uint64_t node) {
    int is_prog = node == PROG;

    return (struct fuse_attr){
        .ino = node,
        .size = is_prog ? backing.st_size : 0,
        .mode = is_prog ? S_IFREG | 0755 : S_IFDIR | 0755,
        .nlink = 1,
        .blksize = 4096,
        .mtime = backing.st_mtime,
        .ctime = backing.st_mtime,
    };
}

static void serve(struct fuse_in_header *in, void *argument) {
    static char data[1 << 17];

    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_in *init = argument;
        struct fuse_init_out out = {
            .major = FUSE_KERNEL_VERSION,
            .minor = init->minor < FUSE_KERNEL_MINOR_VERSION ? init->minor : FUSE_KERNEL_MINOR_VERSION,
            .max_readahead = 1 << 16,
            .max_write = 1 << 16,
            .max_background = 16,
        };
        answer(in->unique, 0, &out, sizeof(out));
        break;
    }
    case FUSE_LOOKUP: {
        // Nothing is remembered of names and attributes: each time they are asked for again.
        struct fuse_entry_out out = {.nodeid = PROG, .attr = attributes(PROG)};
        int is_prog = strcmp(argument, "prog") == 0;
        answer(in->unique, is_prog ? 0 : ENOENT, &out, is_prog ? sizeof(out) : 0);
        break;
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        answer(in->unique, 0, &out, sizeof(out));
        break;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE};
        answer(in->unique, 0, &out, sizeof(out));
        break;
    }
    case FUSE_READ: {
        struct fuse_read_in *read_in = argument;
        size_t size = read_in->size < sizeof(data) ? read_in->size : sizeof(data);
        ssize_t got = pread(file, data, size, read_in->offset);
        answer(in->unique, got < 0 ? EIO : 0, data, got < 0 ? 0 : got);
        break;
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(in->unique, ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    static char in[sizeof(struct fuse_in_header) + (1 << 17)];
    char options[128];
    ssize_t got;

    if (argc != 3)
        return fprintf(stderr, "usage: hang DIRECTORY PROGRAM\n"), 2;
    directory = argv[1];
    file = open(argv[2], O_RDONLY);
    device = open("/dev/fuse", O_RDWR);
    if (file < 0 || fstat(file, &backing) || device < 0)
        return perror("hang: open"), 1;
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("hang", directory, "fuse", 0, options))
        return perror("hang: mount"), 1;
    signal(SIGUSR1, be_silent);
    signal(SIGTERM, end);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while ((got = read(device, in, sizeof(in))) > 0 || errno == EINTR || errno == EAGAIN || errno == ENOENT)
        if (got > 0 && !silent)
            serve((struct fuse_in_header *)in, in + sizeof(struct fuse_in_header));
    end(0);
}
