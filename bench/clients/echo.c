/* echo: what the machine needs to answer requests at all, whatever the language. Not a broker.
 *
 *   echo FOLDER READY_FILE [--sync]
 *
 * One thread and epoll. A Produce 7 is framed, its records are written to a file, and it is answered; ListOffsets 1
 * and Fetch 4 are answered with a constant. Nothing is checked. With --sync, one fdatasync covers whatever one turn of
 * epoll brought, and the answers follow it. Serves until killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, ROOM = 2 << 20, EVENTS = 256 };
static const int64_t most_bytes = 4LL << 30; /* the file begins anew there */

struct client {
  int socket;
  size_t filled, answered;
  uint8_t in[ROOM], out[ROOM];
};

static int file, is_sync;
static int64_t position, next_offset;

static void fail(const char *what) {
  fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
  exit(2);
}

static int64_t get(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
  return (int64_t)(value << (64 - 8 * bytes)) >> (64 - 8 * bytes);
}
static uint8_t *put(uint8_t *at, int bytes, int64_t value) {
  for (int i = bytes - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
  return at + bytes;
}
static uint8_t *copy(uint8_t *at, const uint8_t *from, size_t bytes) {
  memcpy(at, from, bytes);
  return at + bytes;
}

static int64_t append(const uint8_t *records, size_t bytes) {
  int64_t base = next_offset;
  next_offset += get(records + 57, 4);
  if (pwrite(file, records, bytes, position) != (ssize_t)bytes) fail("pwrite");
  position = (position + (int64_t)bytes) % most_bytes;
  return base;
}

/* Write the answer to one request, its size first; return its end. */
static uint8_t *answer(const uint8_t *frame, uint8_t *out) {
  int64_t key = get(frame + 4, 2), client_id = get(frame + 12, 2);
  const uint8_t *at = frame + 14 + (client_id > 0 ? client_id : 0);
  uint8_t *to = copy(out + 4, frame + 8, 4);
  if (key == PRODUCE) {
    int64_t transaction = get(at, 2);
    at += 2 + (transaction > 0 ? transaction : 0) + 6 + 4; /* acks, timeout, count of topics */
    size_t name = 2 + (size_t)get(at, 2);
    const uint8_t *partition = at + name + 4, *records = partition + 8;
    int64_t base = append(records, (size_t)get(partition + 4, 4));
    to = copy(put(copy(put(to, 4, 1), at, name), 4, 1), partition, 4);
    to = put(put(put(put(put(to, 2, 0), 8, base), 8, -1), 8, 0), 4, 0);
  } else if (key == LIST_OFFSETS || key == FETCH) {
    at += key == FETCH ? 21 : 8;
    size_t name = 2 + (size_t)get(at, 2);
    if (key == FETCH) to = put(to, 4, 0);
    to = put(put(copy(put(to, 4, 1), at, name), 4, 1), 4, 0);
    to = put(put(put(to, 2, 0), 8, 5), 8, 5);
    if (key == FETCH) to = put(put(to, 4, -1), 4, 0);
  } else {
    to = put(put(put(to, 2, 0), 4, 0), 4, 0);
  }
  put(out, 4, to - out - 4);
  return to;
}

static void send_answers(struct client *client) {
  for (size_t sent = 0; sent < client->answered;) {
    ssize_t wrote = send(client->socket, client->out + sent, client->answered - sent, MSG_NOSIGNAL);
    if (wrote < 0 && errno != EAGAIN) break;
    if (wrote > 0) sent += (size_t)wrote;
  }
  client->answered = 0;
}

/* Return whether the client is still there. */
static int serve(struct client *client) {
  ssize_t got = recv(client->socket, client->in + client->filled, ROOM - client->filled, 0);
  if (got < 0 && errno == EAGAIN) return 1;
  if (got <= 0) return 0;
  client->filled += (size_t)got;
  size_t done = 0;
  uint8_t *out = client->out;
  while (client->filled - done >= 4) {
    size_t frame = 4 + (size_t)get(client->in + done, 4);
    if (client->filled - done < frame) break;
    out = answer(client->in + done, out);
    done += frame;
  }
  memmove(client->in, client->in + done, client->filled -= done);
  client->answered = (size_t)(out - client->out);
  return 1;
}

static int listen_and_tell(const char *ready_file) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof address;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (void *)&address, size) || listen(listener, 4096)) fail("listen");
  getsockname(listener, (void *)&address, &size);
  char partial[4096];
  snprintf(partial, sizeof partial, "%s.partial", ready_file);
  FILE *told = fopen(partial, "w");
  if (!told) fail(partial);
  fprintf(told, "127.0.0.1:%d\n", ntohs(address.sin_port));
  fclose(told);
  if (rename(partial, ready_file)) fail(ready_file);
  return listener;
}

static void accept_client(int poller, int listener) {
  struct client *client = malloc(sizeof *client);
  if (!client) fail("memory");
  client->socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
  client->filled = client->answered = 0;
  int one = 1;
  setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct epoll_event event = {EPOLLIN, {.ptr = client}};
  if (client->socket < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, client->socket, &event)) fail("accept");
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  char path[4096];
  snprintf(path, sizeof path, "%s/echo.log", arguments[1]);
  file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0) fail(path);
  is_sync = count > 3;
  int poller = epoll_create1(0), listener = listen_and_tell(arguments[2]);
  struct epoll_event event = {EPOLLIN, {.ptr = NULL}}, events[EVENTS];
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    int ready = epoll_wait(poller, events, EVENTS, -1);
    int64_t before = position;
    for (int i = 0; i < ready; i++) {
      struct client *client = events[i].data.ptr;
      if (!client) {
        accept_client(poller, listener);
      } else if (!serve(client)) {
        close(client->socket);
        free(client);
        events[i].data.ptr = NULL;
      } else if (!is_sync) {
        send_answers(client);
      }
    }
    if (!is_sync) continue;
    if (position != before && fdatasync(file)) fail("fdatasync");
    for (int i = 0; i < ready; i++)
      if (events[i].data.ptr) send_answers(events[i].data.ptr);
  }
}
