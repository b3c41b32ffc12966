/* load: Kafka requests as fast as a broker answers them, or at a given rate. One thread, epoll, no client library.
 *
 *   load --port N --mode produce|fetch|list-offsets|api-versions|relay [options]; see `options` below.
 *
 * Versions: Produce 7, Fetch 4, ListOffsets 1, ApiVersions 0: what every broker since Kafka 1.0 speaks.
 * It stops by itself: after --requests answers or --seconds, whichever comes first, the first --warm-up-seconds left
 * out. Prints one line of JSON: rate, latency percentiles, its own CPU and that of process --pid over the same span.
 * With --rate, latency counts from when a request was due, not from when it could be sent: a broker that stalls
 * is not excused the requests that it kept from being sent. Exit status 1 if any answer held an error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum mode { PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, RELAY };
static const char *mode_names[] = {"produce", "fetch", "list-offsets", "api-versions", "relay"};
static const int api_keys[] = {0, 1, 2, 18};
static const int api_versions[] = {7, 4, 1, 0};

static enum mode mode = PRODUCE;
static const char *topic = "bench";
static int port = 9092, partitions = 1, connections = 1, in_flight = 1, acks = 1, size = 100, records = 1;
static int max_wait_ms = 500, fetch_bytes = 1 << 20, times = 0, sequential = 0, pid = 0;
static long max_requests = 1L << 40, rate = 0;
static double seconds = 3, warm_up_seconds = 0;
static int64_t stride = 0, from = 0, to = 1; /* offsets of fetch, timestamps of list-offsets: drawn from [from, to) */

static struct option options[] = {
    {"mode", 1, 0, 'm'},        {"topic", 1, 0, 't'},      {"port", 1, 0, 'p'},
    {"partitions", 1, 0, 'P'},  /* requests go to all of them in turn */
    {"connections", 1, 0, 'c'}, {"in-flight", 1, 0, 'i'},  /* requests on their way, on each connection */
    {"acks", 1, 0, 'a'},        {"size", 1, 0, 's'},       {"records", 1, 0, 'r'}, /* of a produce: its one batch */
    {"max-wait-ms", 1, 0, 'w'}, {"fetch-bytes", 1, 0, 'b'},
    {"times", 1, 0, 'T'},       /* list-offsets: ask for only so many different times, again and again */
    {"stride", 1, 0, 'D'},      /* list-offsets: step through the times by this, in an order that looks like chance */
    {"sequential", 0, 0, 'S'},  /* fetch: from `from` on, each where the last one ended; stops at `to` */
    {"from", 1, 0, 'f'},        {"to", 1, 0, 'e'},
    {"requests", 1, 0, 'n'},    {"rate", 1, 0, 'R'},       /* a second, over all connections */
    {"seconds", 1, 0, 'd'},     {"warm-up-seconds", 1, 0, 'u'},
    {"pid", 1, 0, 'x'},         {0}};

/* -- time and CPU ------------------------------------------------------------------------------------------------ */

static int64_t clock_ns(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) return 0;
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* All threads of a process, user and system: what /proc/PID/stat says, in nanoseconds instead of ticks. */
static int64_t cpu_ns(int process) {
  clockid_t clock;
  return process && !clock_getcpuclockid(process, &clock) ? clock_ns(clock) : 0;
}

static uint64_t random_state = 88172645463325252ULL; /* xorshift; the same run asks the same things */
static uint64_t random_below(uint64_t bound) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state % bound;
}

static void fail(const char *what) {
  fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "refused");
  exit(2);
}

static void *allocate(void *old, size_t bytes) {
  void *memory = realloc(old, bytes);
  if (!memory) fail("memory");
  return memory;
}

/* -- bytes ------------------------------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *at, int bytes, uint64_t value) {
  for (int i = bytes - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
  return at + bytes;
}
static uint8_t *put_string(uint8_t *at, const char *text) {
  size_t length = strlen(text);
  memcpy(put(at, 2, length), text, length);
  return at + 2 + length;
}
static uint8_t *put_varint(uint8_t *at, int64_t value) {
  uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
  for (; rest > 127; rest >>= 7) *at++ = (uint8_t)(rest | 128);
  *at++ = (uint8_t)rest;
  return at;
}
static int varint_size(int64_t value) {
  uint8_t scratch[10];
  return (int)(put_varint(scratch, value) - scratch);
}
static int64_t get(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
  return (int64_t)(value << (64 - 8 * bytes)) >> (64 - 8 * bytes);
}

static uint32_t crc32c(const uint8_t *data, size_t length) {
  static uint32_t table[256];
  if (!table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t c = i;
      for (int k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
      table[i] = c;
    }
  uint32_t crc = ~0u;
  while (length--) crc = table[(crc ^ *data++) & 255] ^ (crc >> 8);
  return ~crc;
}

/* -- one batch, format v2 ---------------------------------------------------------------------------------------- */

static uint8_t *batch;
static size_t batch_bytes, stamp_at; /* stamp_at: where the first record's value begins */

static void seal_batch(void) { put(batch + 17, 4, crc32c(batch + 21, batch_bytes - 21)); }

static void make_batch(void) {
  batch = allocate(NULL, 61 + (size_t)records * (size + 32));
  uint64_t now_ms = (uint64_t)(clock_ns(CLOCK_REALTIME) / 1000000);
  uint8_t *at = batch + 61;
  for (int i = 0; i < records; i++) {
    at = put_varint(at, 1 + 1 + varint_size(i) + 1 + varint_size(size) + size + 1);
    *at++ = 0;                /* attributes */
    *at++ = 0;                /* timestamp delta */
    at = put_varint(at, i);   /* offset delta */
    at = put_varint(at, -1);  /* no key */
    at = put_varint(at, size);
    if (i == 0) stamp_at = (size_t)(at - batch);
    for (int k = 0; k < size; k++) *at++ = (uint8_t)("0123456789abcdef"[random_below(16)]);
    *at++ = 0; /* headers */
  }
  batch_bytes = (size_t)(at - batch);
  at = put(batch, 8, 0);                  /* base offset */
  at = put(at, 4, batch_bytes - 12);
  at = put(at, 4, (uint64_t)-1);          /* leader epoch */
  at = put(at, 1, 2);                     /* magic */
  at = put(at + 4, 2, 0);                 /* CRC comes last; attributes */
  at = put(at, 4, (uint64_t)records - 1); /* last offset delta */
  at = put(put(at, 8, now_ms), 8, now_ms);
  at = put(put(put(at, 8, (uint64_t)-1), 2, (uint64_t)-1), 4, (uint64_t)-1); /* no producer id */
  put(at, 4, (uint64_t)records);
  seal_batch();
}

/* -- connections and requests ------------------------------------------------------------------------------------ */

struct connection {
  int socket, flying, partition, wants_write;
  int32_t next_id, due_id;       /* correlation ids: of the next request, of the next answer */
  int64_t *sent_ns;              /* by correlation id, modulo in_flight */
  int64_t offset;                /* of the next sequential fetch */
  uint8_t *in, *out;
  size_t in_bytes, in_room, out_bytes, out_sent, out_room;
};

static struct connection *all;
static int poller, stopping;
static long sent, answered, errors, empty;
static int first_error;
static int64_t fetched_bytes, *asked_times;

static uint8_t *put_topic(uint8_t *at, int partition) {
  return put(put(put_string(put(at, 4, 1), topic), 4, 1), 4, (uint64_t)partition);
}

/* The k-th time is step number k * prime: no step comes twice before all have come. */
static int64_t strided(void) {
  int64_t steps = (to - from + stride - 1) / stride, prime = 1000003;
  return from + sent * prime % steps * stride;
}

static uint8_t *put_body(uint8_t *at, enum mode kind, struct connection *c) {
  int partition = c->partition++ % partitions;
  switch (kind) {
  case PRODUCE:
    at = put(put(put(at, 2, (uint64_t)-1), 2, (uint64_t)acks), 4, 30000); /* no transaction; timeout */
    at = put(put_topic(at, partition), 4, batch_bytes);
    memcpy(at, batch, batch_bytes);
    return at + batch_bytes;
  case FETCH: {
    int64_t offset = sequential ? c->offset : from + (int64_t)random_below((uint64_t)(to - from));
    at = put(put(put(at, 4, (uint64_t)-1), 4, (uint64_t)max_wait_ms), 4, 1); /* no replica; at least a byte */
    at = put(put(at, 4, (uint64_t)fetch_bytes), 1, 0);
    return put(put(put_topic(at, partition), 8, (uint64_t)offset), 4, (uint64_t)fetch_bytes);
  }
  case LIST_OFFSETS: {
    int64_t when = times    ? asked_times[random_below((uint64_t)times)]
                   : stride ? strided()
                            : from + (int64_t)random_below((uint64_t)(to - from));
    return put(put_topic(put(at, 4, (uint64_t)-1), partition), 8, (uint64_t)when);
  }
  default: return at;
  }
}

static void queue_request(struct connection *c, enum mode kind, int64_t due_ns) {
  size_t most = 256 + strlen(topic) + (kind == PRODUCE ? batch_bytes : 0);
  if (c->out_room - c->out_bytes < most) c->out = allocate(c->out, c->out_room = c->out_room * 2 + most);
  uint8_t *start = c->out + c->out_bytes, *at = put(start + 4, 2, (uint64_t)api_keys[kind]);
  at = put(put(at, 2, (uint64_t)api_versions[kind]), 4, (uint64_t)c->next_id);
  at = put_body(put_string(at, "load"), kind, c);
  put(start, 4, (uint64_t)(at - start - 4));
  c->out_bytes += (size_t)(at - start);
  c->sent_ns[c->next_id++ % in_flight] = due_ns;
  c->flying++, sent++;
}

static void watch(struct connection *c, int operation) {
  struct epoll_event event = {EPOLLIN | (c->wants_write ? EPOLLOUT : 0), {.ptr = c}};
  if (epoll_ctl(poller, operation, c->socket, &event)) fail("epoll_ctl");
}

static void flush(struct connection *c) {
  while (c->out_sent < c->out_bytes) {
    ssize_t wrote = write(c->socket, c->out + c->out_sent, c->out_bytes - c->out_sent);
    if (wrote < 0 && errno != EAGAIN) fail("write");
    if (wrote < 0) break;
    c->out_sent += (size_t)wrote;
  }
  int wants = c->out_sent < c->out_bytes;
  if (!wants) c->out_bytes = c->out_sent = 0;
  if (wants != c->wants_write) c->wants_write = wants, watch(c, EPOLL_CTL_MOD);
}

static void connect_to(struct connection *c, int index) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int one = 1;
  c->socket = socket(AF_INET, SOCK_STREAM, 0);
  if (c->socket < 0 || connect(c->socket, (void *)&address, sizeof address)) fail("connect");
  setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->socket, F_SETFL, O_NONBLOCK);
  c->sent_ns = allocate(NULL, sizeof(int64_t) * (size_t)in_flight);
  c->partition = index % partitions, c->offset = from;
  watch(c, EPOLL_CTL_ADD);
}

/* -- answers ----------------------------------------------------------------------------------------------------- */

static uint32_t *latencies; /* in units of 10 ns, so that 32 bits hold 42 s */
static size_t measured, room;
static int64_t measure_from_ns;

static void note_latency(int64_t due_ns, int64_t now) {
  if (now < measure_from_ns) return;
  if (measured == room) latencies = allocate(latencies, sizeof *latencies * (room = room * 2 + 65536));
  int64_t units = (now - due_ns) / 10;
  latencies[measured++] = units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

static void note_error(int code) {
  if (!errors++) first_error = code;
}

/* Count the bytes and find where the last whole batch ends. */
static void note_records(struct connection *c, const uint8_t *at, int64_t bytes, int64_t now) {
  if (bytes < 61) empty++;
  fetched_bytes += bytes > 0 ? bytes : 0;
  for (const uint8_t *end = at + bytes; end - at >= 61;) {
    int64_t whole = 12 + get(at + 8, 4);
    if (whole > end - at) break;
    c->offset = get(at, 8) + get(at + 23, 4) + 1;
    if (mode == RELAY) note_latency(get(at + stamp_at, 8), now);
    at += whole;
  }
  if (sequential && mode == FETCH && c->offset >= to) stopping = 1;
}

static void take_answer(struct connection *c, enum mode kind, const uint8_t *at, int64_t now) {
  if (get(at, 4) != c->due_id) fail("an answer out of order");
  int64_t due_ns = c->sent_ns[c->due_id++ % in_flight];
  c->flying--, answered++;
  if (mode != RELAY) note_latency(due_ns, now);
  if (kind == API_VERSIONS) {
    if (get(at + 4, 2)) note_error((int)get(at + 4, 2));
    return;
  }
  at += kind == FETCH ? 12 : 8;              /* correlation id, throttle time of fetch, count of topics */
  at += 2 + get(at, 2) + 4 + 4;              /* name, count of partitions, partition */
  int code = (int)get(at, 2);
  if (code) note_error(code);
  if (kind == LIST_OFFSETS && get(at + 10, 8) < 0) empty++;
  if (kind != FETCH || code) return;
  at += 2 + 8 + 8;                           /* error, high watermark, last stable offset */
  int64_t aborted = get(at, 4);
  at += 4 + (aborted > 0 ? aborted * 16 : 0);
  note_records(c, at + 4, get(at, 4), now);
}

static void receive(struct connection *c, enum mode kind) {
  for (;;) {
    if (c->in_room - c->in_bytes < 65536) c->in = allocate(c->in, c->in_room = c->in_room * 2 + 131072);
    size_t wanted = c->in_room - c->in_bytes;
    ssize_t got = read(c->socket, c->in + c->in_bytes, wanted);
    if (got == 0) errno = 0, fail("closed by the broker");
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0) fail("read");
    c->in_bytes += (size_t)got;
    size_t done = 0;
    int64_t now = now_ns();
    while (c->in_bytes - done >= 4) {
      size_t frame = 4 + (size_t)get(c->in + done, 4);
      if (c->in_bytes - done < frame) {
        if (c->in_room < frame + 65536) c->in = allocate(c->in, c->in_room = frame + 65536);
        break;
      }
      take_answer(c, kind, c->in + done + 4, now);
      done += frame;
    }
    memmove(c->in, c->in + done, c->in_bytes -= done);
    if ((size_t)got < wanted) return;
  }
}

/* -- the run ----------------------------------------------------------------------------------------------------- */

static enum mode kind_of(const struct connection *c) { return mode != RELAY ? mode : c == all ? PRODUCE : FETCH; }

static void fill(struct connection *c, int64_t now) {
  enum mode kind = kind_of(c);
  int most = kind == FETCH && sequential ? 1 : in_flight; /* the next one's offset is known only from the answer */
  while (c->flying < most && sent < max_requests && !stopping) queue_request(c, kind, now);
  flush(c);
}

/* Send what is due by now; return the nanoseconds until the next is. A full connection is passed over. */
static int64_t send_due(int64_t start_ns, int64_t now) {
  static long turn;
  int senders = mode == RELAY ? 1 : connections;
  for (int full = 0; !stopping && sent < max_requests && full < senders;) {
    static long scheduled;
    int64_t due_ns = start_ns + (int64_t)((double)scheduled * 1e9 / (double)rate);
    if (due_ns > now) return due_ns - now;
    struct connection *c = &all[turn++ % senders];
    if (c->flying >= in_flight) {
      full++;
      continue;
    }
    full = 0, scheduled++;
    if (mode == RELAY) put(batch + stamp_at, 8, (uint64_t)due_ns), seal_batch();
    queue_request(c, kind_of(c), due_ns);
    flush(c);
  }
  return 1000000;
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}
static double percentile_us(double part) {
  return measured ? latencies[(size_t)(part * (double)(measured - 1))] / 100.0 : 0;
}

static void parse(int count, char **arguments) {
  for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) switch (option) {
    case 'm':
      for (mode = 0; mode <= RELAY && strcmp(optarg, mode_names[mode]);) mode++;
      if (mode > RELAY) errno = EINVAL, fail("--mode");
      break;
    case 't': topic = optarg; break;
    case 'p': port = atoi(optarg); break;
    case 'P': partitions = atoi(optarg); break;
    case 'c': connections = atoi(optarg); break;
    case 'i': in_flight = atoi(optarg); break;
    case 'a': acks = atoi(optarg); break;
    case 's': size = atoi(optarg); break;
    case 'r': records = atoi(optarg); break;
    case 'w': max_wait_ms = atoi(optarg); break;
    case 'b': fetch_bytes = atoi(optarg); break;
    case 'T': times = atoi(optarg); break;
    case 'D': stride = atoll(optarg); break;
    case 'S': sequential = 1; break;
    case 'f': from = atoll(optarg); break;
    case 'e': to = atoll(optarg); break;
    case 'n': max_requests = atol(optarg); break;
    case 'R': rate = atol(optarg); break;
    case 'd': seconds = atof(optarg); break;
    case 'u': warm_up_seconds = atof(optarg); break;
    case 'x': pid = atoi(optarg); break;
    default: exit(2);
    }
  if (mode == RELAY) connections = 2, sequential = 1; /* one produces, one consumes what it produced */
  if (connections < 1 || in_flight < 1 || partitions < 1 || records < 1 || size < 8 || to <= from || acks == 0 ||
      (mode == RELAY && !rate))
    errno = EINVAL, fail("options");
}

int main(int count, char **arguments) {
  parse(count, arguments);
  make_batch();
  asked_times = allocate(NULL, sizeof(int64_t) * (size_t)(times + 1));
  for (int i = 0; i < times; i++) asked_times[i] = from + (int64_t)random_below((uint64_t)(to - from));
  poller = epoll_create1(0);
  all = calloc((size_t)connections, sizeof *all);
  if (!all) fail("memory");
  for (int i = 0; i < connections; i++) connect_to(&all[i], i);

  int64_t start_ns = now_ns(), end_ns, broker_cpu = 0, own_cpu = 0;
  measure_from_ns = start_ns + (int64_t)(warm_up_seconds * 1e9);
  end_ns = measure_from_ns + (int64_t)(seconds * 1e9);
  long answered_before = -1;
  int64_t bytes_before = 0, began_ns = start_ns, now;
  if (!rate)
    for (int i = 0; i < connections; i++) fill(&all[i], start_ns);
  if (mode == RELAY) fill(&all[1], start_ns);
  for (;;) {
    now = now_ns();
    if (answered_before < 0 && now >= measure_from_ns) {
      began_ns = now, answered_before = answered, bytes_before = fetched_bytes;
      broker_cpu = cpu_ns(pid), own_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    }
    if (now >= end_ns || stopping || answered >= max_requests) break;
    int64_t wait_ns = rate ? send_due(start_ns, now) : 100000000;
    int64_t mark_ns = answered_before < 0 ? measure_from_ns : end_ns; /* what must not be slept through */
    if (wait_ns > mark_ns - now) wait_ns = mark_ns - now;
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    struct epoll_event events[256];
    int ready = epoll_pwait2(poller, events, 256, &wait, NULL);
    for (int i = 0; i < ready; i++) {
      struct connection *c = events[i].data.ptr;
      enum mode kind = kind_of(c);
      if (events[i].events & EPOLLOUT) flush(c);
      if (events[i].events & ~(uint32_t)EPOLLOUT) receive(c, kind);
      if (!rate || (mode == RELAY && kind == FETCH)) fill(c, now_ns());
    }
  }
  broker_cpu = cpu_ns(pid) - broker_cpu, own_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own_cpu;
  double took = now > began_ns ? (double)(now - began_ns) / 1e9 : 1e-9;
  long counted = answered - (answered_before > 0 ? answered_before : 0);
  qsort(latencies, measured, sizeof *latencies, by_value);
  printf("{\"requests\": %ld, \"seconds\": %.6f, \"requests_s\": %.3f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
         "\"p999_us\": %.2f, \"max_us\": %.2f, \"broker_cpu_s\": %.6f, \"client_cpu_s\": %.6f, "
         "\"fetched_bytes\": %ld, \"errors\": %ld, \"first_error\": %d, \"empty\": %ld}\n",
         counted, took, (double)counted / took, percentile_us(.5), percentile_us(.99), percentile_us(.999),
         percentile_us(1), (double)broker_cpu / 1e9, (double)own_cpu / 1e9, (long)(fetched_bytes - bytes_before),
         errors, first_error, empty);
  return errors ? 1 : 0;
}
