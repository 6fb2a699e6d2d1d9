// perfmap SECONDS ROUNDS [--memfd] [--fork] [--unlink] [--again]: a JIT that uses its memory again and says so in /tmp/perf-PID.map.
//
// One piece of machine code runs ROUNDS times SECONDS at one address, as generated_first called by first_round and as
// generated_second called by second_round in turn. With --fork a child runs it in the end, called by child_round: it has no
// map of its own. With --unlink the map has no name any more when the program ends. With --again the program becomes itself
// in the end, and runs the code as child_round without a word in the map, which stays as it was.
#include "truth.h"
#include <sys/mman.h>
#include <sys/wait.h>

__attribute__((section("generated"), used)) NOINLINE void body(uint64_t rounds) {
    OWN_FRAME();
    work(rounds);
}
extern char __start_generated[], __stop_generated[];

typedef void code(uint64_t);
static struct truth first = {"first_round", 0}, second = {"second_round", 0};

#define ROUND(name)                                                                                                    \
    NOINLINE uint64_t name(code *run, uint64_t budget) {                                                               \
        OWN_FRAME();                                                                                                   \
        uint64_t start = thread_cpu_ns(), now;                                                                         \
        do {                                                                                                           \
            run(BLOCK);                                                                                                \
            now = thread_cpu_ns();                                                                                     \
        } while (now - start < budget);                                                                                \
        return now - start;                                                                                            \
    }
ROUND(first_round)
ROUND(second_round)
ROUND(child_round)

int main(int argc, char **argv) {
    if (argc < 3)
        return fprintf(stderr, "usage: perfmap SECONDS ROUNDS [--memfd] [--fork] [--unlink]\n"), 2;
    int memfd = 0, forks = 0, unlinks = 0, again = 0, silent = 0;
    for (int i = 3; i < argc; i++) {
        memfd |= strcmp(argv[i], "--memfd") == 0;
        forks |= strcmp(argv[i], "--fork") == 0;
        unlinks |= strcmp(argv[i], "--unlink") == 0;
        again |= strcmp(argv[i], "--again") == 0;
        silent |= strcmp(argv[i], "--silent") == 0;
    }
    size_t len = (size_t)(__stop_generated - __start_generated);
    int fd = memfd ? memfd_create("generated code", 0) : -1;
    if (memfd && write(fd, __start_generated, len) != (ssize_t)len)
        give_up("memfd");
    int prot = PROT_READ | PROT_EXEC | (memfd ? 0 : PROT_WRITE);
    void *memory = mmap(NULL, len, prot, memfd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (memory == MAP_FAILED)
        give_up("mmap");
    if (!memfd)
        memcpy(memory, __start_generated, len);
    code *run = (code *)memory;

    if (silent) {
        printf("address %p\n", memory);
        child_round(run, seconds_arg(argv[1]));
        return cpu_print(), 0;
    }
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    if (!map)
        give_up(path);
    setlinebuf(map);
    fprintf(map, "%lx %zx generated_first\n", (unsigned long)memory, len);
    wait_for_go();

    for (int i = 0; i < atoi(argv[2]); i++) {
        if (i > 0)
            fprintf(map, "%lx %zx generated_%s\n", (unsigned long)memory, len, i % 2 ? "second" : "first");
        if (i % 2)
            truth_add(&second, second_round(run, seconds_arg(argv[1])));
        else
            truth_add(&first, first_round(run, seconds_arg(argv[1])));
    }
    if (forks) {
        pid_t child = fork();
        if (child == 0)
            return child_round(run, seconds_arg(argv[1])), 0;
        if (child < 0 || waitpid(child, NULL, 0) != child)
            give_up("fork");
    }
    if (unlinks)
        unlink(path);
    printf("map %s\naddress %p\n", path, memory);
    truth_print(&first);
    truth_print(&second);
    cpu_print();
    if (again) {
        execl("/proc/self/exe", argv[0], argv[1], "1", "--silent", (char *)NULL);
        give_up("execl");
    }
    return 0;
}
