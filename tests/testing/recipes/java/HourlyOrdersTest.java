import static org.apache.kafka.streams.kstream.Suppressed.BufferConfig.unbounded;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

class HourlyOrdersTest {
    @RegisterExtension
    static final Tidelog tidelog = new Tidelog();

    /** How many orders there were in each hour, told when it has passed. */
    static Topology hourly() {
        var builder = new StreamsBuilder();
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1)))
            .count()
            .suppress(Suppressed.untilWindowCloses(unbounded()))
            .toStream((window, count) -> window.key())
            .to("hourly", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    @Test
    @Timeout(60)
    void theOrdersOfAnHourAreToldWhenItHasPassed(@TempDir Path state) throws Exception {
        long nine = Instant.parse("2026-03-01T09:00:00Z").toEpochMilli();
        tidelog.ask("{\"do\": \"hold\", \"at_ms\": " + nine + "}");
        tidelog.ask("{\"do\": \"create_topic\", \"name\": \"hourly\"}");
        tidelog.ask("{\"do\": \"create_topic\", \"name\": \"orders\","
            + " \"config\": {\"message.timestamp.type\": \"LogAppendTime\"}}"); // the broker's clock stamps them

        var config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, tidelog.bootstrap());
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "hourly-orders");
        config.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // else a count comes with the next commit
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, InMemoryDslStoreSuppliers.class);
        Map<String, Object> client = Map.of("bootstrap.servers", tidelog.bootstrap(), "auto.offset.reset", "earliest",
            "group.id", "test");
        try (var streams = new KafkaStreams(hourly(), config);
                var producer = new KafkaProducer<>(client, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(client, new StringDeserializer(), new LongDeserializer())) {
            streams.start();
            producer.send(new ProducerRecord<>("orders", "tea", "a cup")).get();
            producer.send(new ProducerRecord<>("orders", "tea", "a pot")).get();
            tidelog.ask("{\"do\": \"advance\", \"ms\": 3600000}");
            producer.send(new ProducerRecord<>("orders", "coffee", "a cup")).get();

            consumer.subscribe(List.of("hourly"));
            ConsumerRecords<String, Long> told = ConsumerRecords.empty();
            while (told.isEmpty()) told = consumer.poll(Duration.ofSeconds(1));
            var first = told.iterator().next();
            assertEquals("tea", first.key());
            assertEquals(2, first.value());
        }
    }
}
