// flood SECONDS CPU: sends datagrams to itself over loopback for SECONDS of CPU time, from one CPU only. With receive packet
// steering the kernel handles them as softirqs on another CPU, which is otherwise idle.
#include "truth.h"
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return fprintf(stderr, "usage: flood SECONDS CPU\n"), 2;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(atoi(argv[2]), &only);
    if (sched_setaffinity(0, sizeof only, &only) != 0)
        give_up("sched_setaffinity");
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof to;
    if (receiver < 0 || sender < 0 || bind(receiver, (struct sockaddr *)&to, sizeof to) != 0 ||
        getsockname(receiver, (struct sockaddr *)&to, &size) != 0 || connect(sender, (struct sockaddr *)&to, size) != 0)
        give_up("socket");
    wait_for_go();

    // Nobody reads: the receiver's queue is full at once and each further datagram is dropped at the end of its way.
    char payload[64] = {0};
    unsigned long sent = 0;
    while (thread_cpu_ns() < seconds_arg(argv[1]))
        for (int i = 0; i < 100; i++)
            sent += send(sender, payload, sizeof payload, 0) > 0;
    printf("sent %lu\n", sent);
    cpu_print();
    return 0;
}
