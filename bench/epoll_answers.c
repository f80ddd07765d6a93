/* A server that answers every frame without looking at it: what the kernel and one core can do at best.
 *
 * It prints its port, and serves until its input ends. The answer is that to a heartbeat, with the
 * correlation id of the request.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, BUFFER_BYTES = 4096, EVENTS_MAX = 256, ANSWER_BYTES = 16 };

static unsigned char buffers[CONNECTIONS_MAX][BUFFER_BYTES];
static size_t filled[CONNECTIONS_MAX];

static void serve(int connection) {
    unsigned char *buffer = buffers[connection], answers[BUFFER_BYTES];
    ssize_t count = read(connection, buffer + filled[connection], BUFFER_BYTES - filled[connection]);
    if (count <= 0) {
        close(connection);
        return;
    }
    size_t end = filled[connection] + (size_t)count, begin = 0, ready = 0;
    while (end - begin >= 12) {
        uint32_t size;
        memcpy(&size, buffer + begin, 4);
        size = ntohl(size) + 4;
        if (end - begin < size || ready + ANSWER_BYTES > sizeof answers) {
            break;
        }
        memset(answers + ready, 0, ANSWER_BYTES);
        answers[ready + 3] = ANSWER_BYTES - 4;
        memcpy(answers + ready + 4, buffer + begin + 8, 4);
        ready += ANSWER_BYTES;
        begin += size;
    }
    memmove(buffer, buffer + begin, end - begin);
    filled[connection] = end - begin;
    if (ready && write(connection, answers, ready) != (ssize_t)ready) {
        close(connection);
    }
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), on = 1;
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1024)) {
        return 1;
    }
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event one = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &one);
    one.data.fd = STDIN_FILENO;
    epoll_ctl(poll, EPOLL_CTL_ADD, STDIN_FILENO, &one);
    for (;;) {
        int count = epoll_wait(poll, events, EVENTS_MAX, -1);
        for (int at = 0; at < count; at++) {
            int ready = events[at].data.fd;
            if (ready == STDIN_FILENO) {
                return 0;
            }
            if (ready != listener) {
                serve(ready);
                continue;
            }
            int connection = accept(listener, NULL, NULL);
            if (connection < 0 || connection >= CONNECTIONS_MAX) {
                return 1;
            }
            setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            filled[connection] = 0;
            one.data.fd = connection;
            epoll_ctl(poll, EPOLL_CTL_ADD, connection, &one);
        }
    }
}
