/* rdkafka: what librdkafka's users see. Produces or consumes a number of records, as fast as it goes.
 *
 *   rdkafka produce|consume --port N --topic T --records N [options]; see `options` below. name=value arguments
 *   behind them are librdkafka's own settings.
 *
 * With --clients N there are N threads, each with a client of its own, which share the partitions and the records.
 * Prints one line of JSON: rate, delivery latency percentiles, its own CPU and that of process --pid. Gives up after
 * --seconds; exit status 1 if any record failed or was missing.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The part of librdkafka's C interface that is used here; its binary interface has been stable since 0.9. */
typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
  int error;
  rd_kafka_topic_t *topic;
  int32_t partition;
  void *payload;
  size_t length;
  void *key;
  size_t key_length;
  int64_t offset;
  void *opaque;
} rd_kafka_message_t;
enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER, RD_KAFKA_CONF_OK = 0, RD_KAFKA_MSG_F_COPY = 2 };
extern const char *rd_kafka_version_str(void);
extern rd_kafka_conf_t *rd_kafka_conf_new(void);
extern int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
extern void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *,
                                        void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
extern void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
extern rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
extern rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
extern int rd_kafka_metadata(rd_kafka_t *, int, rd_kafka_topic_t *, const void **, int);
extern void rd_kafka_metadata_destroy(const void *);
extern int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
extern int rd_kafka_poll(rd_kafka_t *, int);
extern int64_t rd_kafka_message_latency(const rd_kafka_message_t *);
extern rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
extern int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
extern int rd_kafka_consume_callback_queue(rd_kafka_queue_t *, int, void (*)(rd_kafka_message_t *, void *), void *);

static struct option options[] = {
    {"port", 1, 0, 'p'},    {"topic", 1, 0, 't'},   {"partitions", 1, 0, 'P'}, {"clients", 1, 0, 'c'},
    {"records", 1, 0, 'n'}, {"size", 1, 0, 's'},    {"seconds", 1, 0, 'd'},    {"pid", 1, 0, 'x'},
    {"random", 0, 0, 'r'}, /* payload that does not compress, instead of something like JSON */
    {0}};
static const char *topic_name = "bench";
static int port = 9092, partitions = 1, clients = 1, size = 100, pid = 0, incompressible = 0, producing;
static long records = 1000000;
static double seconds = 120;
static char **settings;

enum { PAYLOADS = 8192, SAMPLE = 64 /* one latency in so many is kept */ };
static char *payloads[PAYLOADS];

struct client {
  pthread_t thread;
  int index;
  rd_kafka_t *handle;
  rd_kafka_topic_t *topic;
  rd_kafka_queue_t *queue;
  long wanted, done, failed, sampled, bytes;
  uint32_t *latencies_us;
};

static void fail(const char *what, const char *why) {
  fprintf(stderr, "rdkafka: %s: %s\n", what, why);
  exit(2);
}

static double clock_s(clockid_t clock) {
  struct timespec t;
  return clock_gettime(clock, &t) ? 0 : (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static double cpu_s(int process) {
  clockid_t clock;
  return process && !clock_getcpuclockid(process, &clock) ? clock_s(clock) : 0;
}

static void delivered(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
  struct client *client = opaque;
  (void)handle;
  client->failed += message->error != 0;
  if (client->done++ % SAMPLE == 0)
    client->latencies_us[client->sampled++] = (uint32_t)rd_kafka_message_latency(message);
}

static void consumed(rd_kafka_message_t *message, void *opaque) {
  struct client *client = opaque;
  if (message->error) return; /* the end of a partition, or a broker that is away: it goes on or runs out of time */
  client->done++;
  client->bytes += (long)message->length;
}

/* Something like what people log: it compresses as JSON does. */
static void make_payloads(void) {
  static const char *events[] = {"login", "logout", "view", "click", "purchase", "refund", "search", "share"};
  srandom(7);
  for (int i = 0; i < PAYLOADS; i++) {
    char *text = payloads[i] = malloc((size_t)size + 256);
    for (int n = 0; n < size;) {
      if (incompressible) text[n++] = (char)random();
      else
        n += snprintf(text + n, 256, "{\"id\":%ld,\"user\":\"u%06ld\",\"event\":\"%s\",\"from\":\"10.%ld.%ld.%ld\","
                      "\"amount\":%ld.%02ld,\"trace\":\"%08lx%08lx\"}", random() % 100000000, random() % 1000000,
                      events[random() % 8], random() % 256, random() % 256, random() % 256, random() % 1000,
                      random() % 100, random(), random());
    }
  }
}

static void open_client(struct client *client, int index) {
  char why[512], address[64];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  snprintf(address, sizeof address, "127.0.0.1:%d", port);
  rd_kafka_conf_set(conf, "bootstrap.servers", address, why, sizeof why);
  for (char **setting = settings; *setting; setting++) {
    char name[256];
    const char *equals = strchr(*setting, '=');
    if (!equals || equals - *setting >= (long)sizeof name) fail(*setting, "write it as name=value");
    snprintf(name, sizeof name, "%.*s", (int)(equals - *setting), *setting);
    if (rd_kafka_conf_set(conf, name, equals + 1, why, sizeof why) != RD_KAFKA_CONF_OK) fail(*setting, why);
  }
  if (producing) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
  rd_kafka_conf_set_opaque(conf, client);
  client->index = index;
  client->wanted = records / clients;
  client->latencies_us = malloc(sizeof(uint32_t) * (size_t)(client->wanted / SAMPLE + 1));
  client->handle = rd_kafka_new(producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, why, sizeof why);
  if (!client->handle) fail("client", why);
  client->topic = rd_kafka_topic_new(client->handle, topic_name, NULL);
  const void *metadata;
  if (rd_kafka_metadata(client->handle, 0, client->topic, &metadata, 10000)) fail("metadata", "no answer");
  rd_kafka_metadata_destroy(metadata);
}

static double give_up_at;

static void *produce(void *argument) {
  struct client *client = argument;
  for (long i = 0; i < client->wanted; i++) {
    int partition = (int)((client->index + i / 1024) % partitions);
    while (rd_kafka_produce(client->topic, partition, RD_KAFKA_MSG_F_COPY, payloads[i % PAYLOADS], (size_t)size,
                            NULL, 0, NULL)) {
      rd_kafka_poll(client->handle, 10); /* its queue is full */
      if (clock_s(CLOCK_MONOTONIC) > give_up_at) return NULL;
    }
    if (i % 1024 == 0) rd_kafka_poll(client->handle, 0);
  }
  while (client->done < client->wanted && clock_s(CLOCK_MONOTONIC) < give_up_at) rd_kafka_poll(client->handle, 10);
  client->bytes = client->done * size;
  return NULL;
}

/* What all consumers have: none of them knows how many records are in its own partitions. */
static struct client *all;
static long total(void) {
  long sum = 0;
  for (int i = 0; i < clients; i++) sum += __atomic_load_n(&all[i].done, __ATOMIC_RELAXED);
  return sum;
}

static void *consume(void *argument) {
  struct client *client = argument;
  enum { BEGINNING = -2 };
  client->queue = rd_kafka_queue_new(client->handle);
  for (int partition = client->index; partition < partitions; partition += clients)
    rd_kafka_consume_start_queue(client->topic, partition, BEGINNING, client->queue);
  while (total() < records && clock_s(CLOCK_MONOTONIC) < give_up_at)
    rd_kafka_consume_callback_queue(client->queue, 100, consumed, client);
  return NULL;
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void parse(int count, char **arguments) {
  for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) switch (option) {
    case 'p': port = atoi(optarg); break;
    case 't': topic_name = optarg; break;
    case 'P': partitions = atoi(optarg); break;
    case 'c': clients = atoi(optarg); break;
    case 'n': records = atol(optarg); break;
    case 's': size = atoi(optarg); break;
    case 'd': seconds = atof(optarg); break;
    case 'x': pid = atoi(optarg); break;
    case 'r': incompressible = 1; break;
    default: exit(2);
    }
  if (optind >= count || clients < 1 || partitions < 1 || records < clients) fail("options", "see the source");
  producing = !strcmp(arguments[optind], "produce");
  settings = arguments + optind + 1;
}

int main(int count, char **arguments) {
  parse(count, arguments);
  if (producing) make_payloads();
  all = calloc((size_t)clients, sizeof *all);
  for (int i = 0; i < clients; i++) open_client(&all[i], i);

  double began = clock_s(CLOCK_MONOTONIC), broker_cpu = cpu_s(pid), own_cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  give_up_at = began + seconds;
  for (int i = 0; i < clients; i++) pthread_create(&all[i].thread, NULL, producing ? produce : consume, &all[i]);
  for (int i = 0; i < clients; i++) pthread_join(all[i].thread, NULL);
  double took = clock_s(CLOCK_MONOTONIC) - began;
  broker_cpu = cpu_s(pid) - broker_cpu, own_cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) - own_cpu;

  long done = 0, failed = 0, bytes = 0, sampled = 0, wanted = producing ? records / clients * clients : records;
  for (int i = 0; i < clients; i++) sampled += all[i].sampled;
  uint32_t *latencies = malloc(sizeof *latencies * (size_t)(sampled + 1));
  sampled = 0;
  for (int i = 0; i < clients; i++) {
    done += all[i].done, failed += all[i].failed, bytes += all[i].bytes;
    memcpy(latencies + sampled, all[i].latencies_us, sizeof *latencies * (size_t)all[i].sampled);
    sampled += all[i].sampled;
  }
  qsort(latencies, (size_t)sampled, sizeof *latencies, by_value);
  long errors = failed + (done < wanted ? wanted - done : 0);
  printf("{\"records\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"records_s\": %.3f, \"bytes_s\": %.3f, "
         "\"broker_cpu_s\": %.6f, \"client_cpu_s\": %.6f, \"errors\": %ld",
         done, bytes, took, (double)done / took, (double)bytes / took, broker_cpu, own_cpu, errors);
  if (sampled)
    printf(", \"p50_us\": %u, \"p99_us\": %u, \"p999_us\": %u", latencies[sampled / 2],
           latencies[sampled * 99 / 100], latencies[sampled * 999 / 1000]);
  printf("}\n");
  fflush(stdout);
  _exit(errors ? 1 : 0); /* an orderly close of every client would only take time */
}
