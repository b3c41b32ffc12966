import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group: as tests/e2e/members/member.py, by Apache's own client.
 *
 * <pre>Member BOOTSTRAP GROUP TOPIC SESSION_MS PROTOCOL ASSIGNOR</pre>
 */
public final class Member {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("group.protocol", arguments[4]);
        if (arguments[4].equals("classic")) {
            int sessionMs = Integer.parseInt(arguments[3]);
            properties.put("session.timeout.ms", sessionMs);
            properties.put("heartbeat.interval.ms", sessionMs / 5);
            properties.put("partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer." + (arguments[5].equals("cooperative-sticky")
                            ? "CooperativeStickyAssignor" : "RangeAssignor"));
        }
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("fetch.max.wait.ms", "100");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ignored) {
                // As good as an end.
            }
            isOver.set(true);
        });
        end.setDaemon(true);
        end.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }

                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    TreeSet<Integer> has = new TreeSet<>();
                    consumer.assignment().forEach(each -> has.add(each.partition()));
                    StringBuilder line = new StringBuilder("A");
                    has.forEach(partition -> line.append(' ').append(partition));
                    System.out.println(line);
                }
            });
            while (!isOver.get()) {
                consume(consumer);
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        Map<Integer, Long> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            System.out.println("R " + record.partition() + " " + record.offset());
            ends.put(record.partition(), record.offset() + 1);
        }
        if (ends.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync();
        } catch (KafkaException error) {
            System.out.println("E " + error);
            return;
        }
        ends.forEach((partition, offset) -> System.out.println("C " + partition + " " + offset));
    }
}
