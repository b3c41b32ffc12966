import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache's own Java clients at their defaults, driven from a command line; answers go to stdout, one a line.
 *
 * <pre>
 * produce BOOTSTRAP TOPIC COUNT FIRST_TIMESTAMP CODEC...   prints: codec offset timestamp
 * consume BOOTSTRAP TOPIC COUNT                            prints: offset timestamp key value header
 * offsets BOOTSTRAP TOPIC TIMESTAMP...                     prints: timestamp offset timestamp (or -)
 * remade BOOTSTRAP TOPIC                                   prints: the value of a record in a topic that was made again
 * replaced BOOTSTRAP TOPIC                                 prints: the offset of a record, and of one after a line of stdin
 * transaction BOOTSTRAP TOPIC                              prints: what a transactional producer is told at its start
 * </pre>
 */
public final class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        List<String> rest = Arrays.asList(arguments).subList(3, arguments.length);
        switch (arguments[0]) {
            case "produce" -> produce(arguments[1], arguments[2], rest);
            case "consume" -> consume(arguments[1], arguments[2], Integer.parseInt(rest.get(0)));
            case "follow" -> follow(
                    arguments[1], arguments[2], Integer.parseInt(rest.get(0)), Integer.parseInt(rest.get(1)));
            case "offsets" -> offsets(arguments[1], arguments[2], rest);
            case "remade" -> remade(arguments[1], arguments[2]);
            case "replaced" -> replaced(arguments[1], arguments[2]);
            case "transaction" -> transaction(arguments[1], arguments[2]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Read a topic by a regular expression of the broker's; delete the topic and make it again meanwhile. */
    private static void remade(String bootstrap, String topic) throws Exception {
        Properties properties = properties(bootstrap);
        properties.put("group.id", topic);
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("metadata.max.age.ms", "100");
        List<NewTopic> topics = List.of(new NewTopic(topic, 1, (short) 1));
        try (Admin admin = Admin.create(properties(bootstrap));
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(properties(bootstrap), new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(topic + ".*"));
            long end = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.assignment().isEmpty() && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(50));
            }
            admin.deleteTopics(List.of(topic)).all().get();
            // The consumer asks for the topic by its id meanwhile, which nothing has now.
            for (int i = 0; i < 10; i++) {
                consumer.poll(Duration.ofMillis(50));
            }
            admin.createTopics(topics).all().get();
            producer.send(new ProducerRecord<>(topic, "of the new one")).get();
            end = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println(record.value());
                    return;
                }
            }
        }
    }

    private static void produce(String bootstrap, String topic, List<String> rest) throws Exception {
        int count = Integer.parseInt(rest.get(0));
        long timestamp = Long.parseLong(rest.get(1));
        for (String codec : rest.subList(2, rest.size())) {
            Properties properties = properties(bootstrap);
            properties.put("compression.type", codec);
            properties.put("linger.ms", "5");
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < count; i++) {
                    String key = i % 10 == 0 ? null : "key-" + i;
                    String value = i % 10 == 1 ? null : codec + "-" + i;
                    ProducerRecord<String, String> record =
                            new ProducerRecord<>(topic, 0, timestamp++, key, value);
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    answers.add(producer.send(record));
                }
                for (Future<RecordMetadata> answer : answers) {
                    RecordMetadata metadata = answer.get();
                    System.out.println(codec + " " + metadata.offset() + " " + metadata.timestamp());
                }
            }
        }
    }

    private static void consume(String bootstrap, String topic, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            int seen = 0;
            while (seen < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    String header = new String(
                            record.headers().lastHeader("codec").value(), StandardCharsets.UTF_8);
                    System.out.println(record.offset() + " " + record.timestamp() + " " + record.key() + " "
                            + record.value() + " " + header);
                    seen++;
                }
            }
        }
    }

    /** Reads so many records of all partitions, of which another one is paused at each poll. */
    private static void follow(String bootstrap, String topic, int partitions, int count) {
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            all.add(new TopicPartition(topic, partition));
        }
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            int polls = 0;
            int seen = 0;
            while (seen < count && System.nanoTime() < deadline) {
                consumer.resume(all);
                consumer.pause(List.of(all.get(polls++ % partitions)));
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println(record.partition() + " " + record.offset());
                    seen++;
                }
            }
        }
    }

    private static void offsets(String bootstrap, String topic, List<String> timestamps) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            for (String text : timestamps) {
                Map<TopicPartition, Long> query = new HashMap<>();
                query.put(partition, Long.parseLong(text));
                var found = consumer.offsetsForTimes(query, PATIENCE).get(partition);
                System.out.println(
                        text + " " + (found == null ? "-" : found.offset() + " " + found.timestamp()));
            }
        }
    }

    /** Send a record, wait for a line, and send another: the broker may be another one by then. */
    private static void replaced(String bootstrap, String topic) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties(bootstrap), new StringSerializer(), new StringSerializer())) {
            System.out.println(producer.send(new ProducerRecord<>(topic, "first")).get().offset());
            System.in.read();
            System.out.println(producer.send(new ProducerRecord<>(topic, "second")).get().offset());
        }
    }

    private static void transaction(String bootstrap, String topic) {
        Properties properties = properties(bootstrap);
        properties.put("transactional.id", topic);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
        } catch (KafkaException refused) {
            System.out.println(refused.getMessage());
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap) {
        Properties properties = properties(bootstrap);
        properties.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private JavaClient() {}
}
