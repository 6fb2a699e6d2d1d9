// fromfd PROGRAM ARGS...: copies PROGRAM into a memfd called "prog one" and becomes it.
#include "truth.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 2)
        return fprintf(stderr, "usage: fromfd PROGRAM ARGS...\n"), 2;
    struct stat about;
    int from = open(argv[1], O_RDONLY | O_CLOEXEC), to = memfd_create("prog one", MFD_CLOEXEC);
    if (from < 0 || to < 0 || fstat(from, &about) != 0 || sendfile(to, from, NULL, (size_t)about.st_size) != about.st_size)
        give_up(argv[1]);
    fexecve(to, argv + 1, environ);
    give_up("fexecve");
}
