/* A failing device, for LD_PRELOAD: calls on files named *.bprof fail, or take their time.
 * BAD_WRITE=N:ERRNO   writes from the Nth on fail; the one before is cut in half
 * BAD_SYNC=N:ERRNO    fdatasync from the Nth on
 * SLOW_SYNC=SECONDS   each fdatasync */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_capture(int fd)
{
	char link[64], path[4096];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path));
	return n > 6 && !memcmp(path + n - 6, ".bprof", 6);
}

/* Whether the count-th call (from 1) is to fail; 2 when the next one is. */
static int fails(const char *name, int count, int *error)
{
	const char *text = getenv(name);
	int from = 0;
	if (!text || sscanf(text, "%d:%d", &from, error) != 2)
		return 0;
	return count >= from ? 1 : count + 1 == from ? 2 : 0;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
	static ssize_t (*real)(int, const void *, size_t);
	static int calls;
	int error = 0;
	if (!real)
		real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (!is_capture(fd))
		return real(fd, bytes, count);
	switch (fails("BAD_WRITE", ++calls, &error)) {
	case 1:
		errno = error;
		return -1;
	case 2:
		return real(fd, bytes, count / 2);
	default:
		return real(fd, bytes, count);
	}
}

int fdatasync(int fd)
{
	static int (*real)(int);
	static int calls;
	int error = 0;
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	if (!is_capture(fd))
		return real(fd);
	if (getenv("SLOW_SYNC"))
		sleep(atoi(getenv("SLOW_SYNC")));
	if (fails("BAD_SYNC", ++calls, &error) == 1) {
		errno = error;
		return -1;
	}
	return real(fd);
}
