/* A network between a node and its database: every byte takes a while, and a test may cut it.

   database_proxy SOCKET MICROSECONDS

   listens on a free port of 127.0.0.1, prints it, and connects each caller to the Unix socket SOCKET. A byte
   arrives MICROSECONDS after it was sent, in either direction; nothing is serialised: connections do not wait
   for each other, and any number of bytes may be on the way. Orders come on standard input, a line each, and
   each is answered with `ok`; the end of the input is the end of the program.

     delay N    from now on bytes take N microseconds
     stall      nothing is read, written or accepted any more; whoever waits, waits
     close      open connections end, as if the other side had hung up
     reset      open connections are reset
     refuse     the same, and new ones are reset too
     go         end of `stall` and `refuse`; what was on the way arrives now
     target S   new connections go to the Unix socket S */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 16, MOST_EVENTS = 64 };
#define NEVER INT64_MAX

struct chunk {
    struct chunk *next;
    int64_t due;
    size_t start, length; /* a length of 0 is the end of what is sent */
    char data[];
};

struct side {
    struct pair *pair;
    struct side *other;
    int file;
    int watched; /* epoll events */
    int ended;   /* nothing more is read from it */
    int blocked; /* its socket takes no more for now */
    struct chunk *first, *last; /* on the way to it */
};

struct pair {
    struct pair *next;
    struct side near, far;
    int closing;
};

static struct pair *pairs;
static int epoll, listener, timer, stalled, refusing;
static int64_t delay;
static char target[sizeof(((struct sockaddr_un *)0)->sun_path)];
static struct side orders = {.file = 0}, door, clock_side;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void aim(const char *path) {
    if (strlen(path) >= sizeof target) exit(2);
    strcpy(target, path);
}

static void watch(struct side *side, int events) {
    struct epoll_event event = {.events = (uint32_t)events, .data.ptr = side};
    if (events == side->watched) return;
    epoll_ctl(epoll, side->watched == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, side->file, &event);
    side->watched = events;
}

static void adjust(struct side *side) {
    int events = (side->ended ? 0 : EPOLLIN) | (side->blocked ? EPOLLOUT : 0);
    watch(side, stalled ? 0 : events);
}

static void reset(int file) {
    struct linger hard = {.l_onoff = 1};
    setsockopt(file, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(file);
}

static void drop(struct side *side, int hard) {
    watch(side, 0);
    for (struct chunk *each = side->first, *next; each != NULL; each = next) {
        next = each->next;
        free(each);
    }
    if (hard) reset(side->file);
    else close(side->file);
}

static void sweep(void) {
    for (struct pair **place = &pairs; *place != NULL;) {
        struct pair *each = *place;
        if (each->closing == 0) {
            place = &each->next;
            continue;
        }
        *place = each->next;
        drop(&each->near, each->closing > 1);
        drop(&each->far, 0);
        free(each);
    }
}

static void cut(int how) {
    for (struct pair *each = pairs; each != NULL; each = each->next) each->closing = how;
}

static void add(struct side *to, struct chunk *chunk, size_t length) {
    chunk->next = NULL;
    chunk->due = now() + delay;
    chunk->start = 0;
    chunk->length = length;
    if (to->first == NULL) to->first = chunk;
    else to->last->next = chunk;
    to->last = chunk;
}

static void take(struct side *from) {
    static char buffer[SIZE];
    ssize_t got = recv(from->file, buffer, SIZE, 0);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR) from->pair->closing = 2;
        return;
    }
    struct chunk *chunk = malloc(sizeof *chunk + (size_t)got);
    if (chunk == NULL) abort();
    memcpy(chunk->data, buffer, (size_t)got);
    add(from->other, chunk, (size_t)got);
    if (got == 0) {
        from->ended = 1;
        adjust(from);
    }
}

/* Write what is due; returns when there is more to do. */
static int64_t hand_over(struct side *to, int64_t time) {
    while (to->first != NULL && !to->blocked) {
        struct chunk *chunk = to->first;
        if (chunk->due > time) return chunk->due;
        if (chunk->length == 0) {
            shutdown(to->file, SHUT_WR);
        } else {
            ssize_t sent = send(to->file, chunk->data + chunk->start, chunk->length, MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) {
                to->pair->closing = 2;
                return NEVER;
            }
            if (sent > 0) chunk->start += (size_t)sent, chunk->length -= (size_t)sent;
            if (chunk->length > 0) {
                to->blocked = 1;
                adjust(to);
                return NEVER;
            }
        }
        to->first = chunk->next;
        free(chunk);
    }
    if (to->first == NULL && to->other->ended && to->other->first == NULL && to->ended) to->pair->closing = 1;
    return NEVER;
}

static void greet(void) {
    int one = 1, file = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (file < 0) return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, target, sizeof target);
    int far = refusing ? -1 : socket(AF_UNIX, SOCK_STREAM, 0);
    if (far < 0 || connect(far, (struct sockaddr *)&address, sizeof address) < 0) {
        if (far >= 0) close(far);
        reset(file);
        return;
    }
    fcntl(far, F_SETFL, O_NONBLOCK);
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL) abort();
    pair->near = (struct side){.pair = pair, .other = &pair->far, .file = file};
    pair->far = (struct side){.pair = pair, .other = &pair->near, .file = far};
    pair->next = pairs;
    pairs = pair;
    adjust(&pair->near);
    adjust(&pair->far);
}

static void obey(char *order) {
    if (strncmp(order, "delay ", 6) == 0) delay = atoll(order + 6) * 1000;
    else if (strncmp(order, "target ", 7) == 0) aim(order + 7);
    else if (strcmp(order, "close") == 0) cut(1);
    else if (strcmp(order, "reset") == 0) cut(2);
    else if (strcmp(order, "refuse") == 0) cut(2), refusing = 1;
    else if (strcmp(order, "stall") == 0) stalled = 1;
    else if (strcmp(order, "go") == 0) stalled = refusing = 0;
    else exit(2);
    sweep();
    for (struct pair *each = pairs; each != NULL; each = each->next) adjust(&each->near), adjust(&each->far);
    watch(&door, stalled ? 0 : EPOLLIN);
    puts("ok");
}

static void listen_to_orders(void) {
    static char text[4096];
    static size_t length;
    ssize_t got = read(0, text + length, sizeof text - 1 - length);
    if (got <= 0) exit(0);
    length += (size_t)got;
    for (char *end; (end = memchr(text, '\n', length)) != NULL;) {
        *end = 0;
        obey(text);
        size_t used = (size_t)(end - text) + 1;
        memmove(text, end + 1, length -= used);
    }
}

static void set_alarm(int64_t due) {
    static int64_t set = NEVER;
    struct itimerspec when = {0};
    if (due == set && due > now()) return;
    set = due;
    if (due != NEVER) when.it_value = (struct timespec){due / 1000000000, due % 1000000000};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    aim(words[1]);
    delay = atoll(words[2]) * 1000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    prctl(PR_SET_TIMERSLACK, 1000); /* nanoseconds; usual are 50,000 */
    epoll = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 512) < 0) return 1;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    door.file = listener;
    clock_side.file = timer;
    watch(&orders, EPOLLIN);
    watch(&door, EPOLLIN);
    watch(&clock_side, EPOLLIN);
    for (;;) {
        struct epoll_event events[MOST_EVENTS];
        int found = epoll_wait(epoll, events, MOST_EVENTS, -1);
        int ordered = 0;
        for (int i = 0; i < found; i++) {
            struct side *side = events[i].data.ptr;
            if (side == &orders) {
                ordered = 1;
            } else if (side == &door) {
                greet();
            } else if (side == &clock_side) {
                uint64_t times;
                if (read(timer, &times, sizeof times) < 0 && errno != EAGAIN) abort();
            } else {
                if (events[i].events & EPOLLOUT) side->blocked = 0, adjust(side);
                if (events[i].events & ~(unsigned)EPOLLOUT && !side->ended) take(side);
                else if (events[i].events & (EPOLLHUP | EPOLLERR)) side->pair->closing = 2;
            }
        }
        if (ordered) listen_to_orders(); /* last: it may free what the other events point to */
        int64_t due = NEVER, time = now();
        for (struct pair *each = pairs; each != NULL && !stalled; each = each->next) {
            int64_t near = hand_over(&each->near, time), far = hand_over(&each->far, time);
            if (near < due) due = near;
            if (far < due) due = far;
        }
        sweep();
        set_alarm(due);
    }
}
