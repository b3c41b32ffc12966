import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * The calls that dashboards make when they start and for their main pages, judged as each judges them.
 *
 * <pre>
 * Dashboards DASHBOARD BOOTSTRAP TOPIC GROUP               prints: what=value, one a line
 * </pre>
 */
public final class Dashboards {
    private final Admin admin;
    private final String bootstrap;
    private final String topic;
    private final String group;

    private Dashboards(Admin admin, String[] arguments) {
        this.admin = admin;
        bootstrap = arguments[1];
        topic = arguments[2];
        group = arguments[3];
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[1]))) {
            Dashboards dashboards = new Dashboards(admin, arguments);
            switch (arguments[0]) {
                case "kafbat" -> dashboards.kafbat();
                case "akhq" -> dashboards.akhq();
                case "kafdrop" -> dashboards.kafdrop();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    /** Kafbat UI: the version and the features that it derives, the type of the controllers, all of its pages. */
    private void kafbat() throws Exception {
        Node controller = admin.describeCluster().controller().get();
        Map<String, String> broker = configs(ConfigResource.Type.BROKER, controller.idString());
        var finalized = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        tell("version.of.older.releases", broker.get("inter.broker.protocol.version"));
        short level = finalized.get("metadata.version").maxVersionLevel();
        tell("version", MetadataVersion.fromFeatureLevel(level).version());
        tell("topic.deletion", broker.get("delete.topic.enable"));
        tell("acls", hasAcls());
        tell("controller.type", controllerType());

        var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        tell("may.alter", cluster.authorizedOperations().get().contains(AclOperation.ALTER));
        Collection<Node> nodes = cluster.nodes().get();
        tell("nodes", nodes.size());
        tell("bytes.on.disk", bytesOnDisk(nodes) > 0);

        TopicDescription described =
                admin.describeTopics(topics()).topicNameValues().get(topic).get();
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigEntry retention = admin.describeConfigs(List.of(resource), options)
                .values()
                .get(resource)
                .get()
                .get("retention.ms");
        tell("topic.config.has.documentation", retention.documentation() != null);
        tell("topic.config.synonyms", retention.synonyms().size());
        tell("topic.producers", admin.describeProducers(partitions(described)).all().get().values().stream()
                .mapToInt(each -> each.activeProducers().size())
                .sum());
        tell("records", recordsByAdmin(described));
        tellGroup(admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group)
                .get());
        tell("quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
    }

    private String controllerType() throws Exception {
        try {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            QuorumInfo.ReplicaState voter = quorum.voters().get(0);
            boolean leads = voter.replicaId() == quorum.leaderId() && quorum.nodes().containsKey(quorum.leaderId());
            long lag = quorum.highWatermark() - voter.logEndOffset();
            return "KRAFT, " + quorum.voters().size() + " voter, leads " + leads + ", lag " + lag;
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof UnsupportedVersionException) {
                return "ZOOKEEPER";
            }
            throw failed;
        }
    }

    private long recordsByAdmin(TopicDescription described) throws Exception {
        long records = 0;
        for (TopicPartition partition : partitions(described)) {
            long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest()))
                    .partitionResult(partition)
                    .get()
                    .offset();
            long start = admin.listOffsets(Map.of(partition, OffsetSpec.earliest()))
                    .partitionResult(partition)
                    .get()
                    .offset();
            records += end - start;
        }
        return records;
    }

    /** AKHQ: nodes, topics with sizes and offsets, groups, records. */
    private void akhq() throws Exception {
        var cluster = admin.describeCluster();
        tell("cluster.is.named", !cluster.clusterId().get().isEmpty());
        tell("controller.is.a.node", cluster.nodes().get().contains(cluster.controller().get()));
        tell("bytes.on.disk", bytesOnDisk(cluster.nodes().get()) > 0);
        TopicDescription described =
                admin.describeTopics(topics()).allTopicNames().get().get(topic);
        tell("replicas", described.partitions().get(0).replicas().size());
        tell("broker.configs", configs(ConfigResource.Type.BROKER, cluster.controller().get().idString()).size() > 100);
        tell("retention.ms", configs(ConfigResource.Type.TOPIC, topic).get("retention.ms"));
        tellGroup(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
        tell("acls", hasAcls());
        tell("records", records(partitions(described), "read_uncommitted"));
    }

    /** Kafdrop: the same by a consumer, which reads what is committed. */
    private void kafdrop() throws Exception {
        tell("controller", admin.describeCluster().controller().get().id());
        tell("retention.ms", configs(ConfigResource.Type.TOPIC, topic).get("retention.ms"));
        tell("groups", admin.listConsumerGroups().valid().get().stream()
                .filter(each -> each.groupId().equals(group))
                .count());
        var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        tell("committed", committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
        tell("acls", hasAcls());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_committed")) {
            var found = consumer.listTopics().get(topic);
            tell("in.sync", found.stream().allMatch(each -> each.inSyncReplicas().length == each.replicas().length));
            tell("offline", found.stream().anyMatch(each -> each.offlineReplicas().length > 0));
        }
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        tell("records", records(partitions(described), "read_committed"));
    }

    // -- what several of them do ------------------------------------------------------------------------------------

    private Collection<String> topics() throws Exception {
        return admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
    }

    private Map<String, String> configs(ConfigResource.Type type, String name) throws Exception {
        Map<String, String> values = new HashMap<>();
        for (var config : admin.describeConfigs(List.of(new ConfigResource(type, name))).all().get().values()) {
            config.entries().forEach(entry -> values.put(entry.name(), entry.value()));
        }
        return values;
    }

    private long bytesOnDisk(Collection<Node> nodes) throws Exception {
        long bytes = 0;
        var ids = nodes.stream().map(Node::id).toList();
        for (var folders : admin.describeLogDirs(ids).allDescriptions().get().values()) {
            for (LogDirDescription folder : folders.values()) {
                bytes += folder.replicaInfos().values().stream().mapToLong(each -> each.size()).sum();
            }
        }
        return bytes;
    }

    private boolean hasAcls() throws Exception {
        try {
            admin.describeAcls(AclBindingFilter.ANY).values().get();
            return true;
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof SecurityDisabledException) {
                return false;
            }
            throw failed;
        }
    }

    private void tellGroup(Map<TopicPartition, OffsetAndMetadata> committed) throws Exception {
        tell("groups", admin.listConsumerGroups().all().get().stream()
                .filter(each -> each.groupId().equals(group))
                .count());
        ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        tell("group.state", described.groupState());
        tell("group.reads", described.members().stream()
                .flatMap(member -> member.assignment().topicPartitions().stream())
                .map(TopicPartition::partition)
                .sorted()
                .toList());
        tell("committed", committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
    }

    private static List<TopicPartition> partitions(TopicDescription described) {
        List<TopicPartition> all = new ArrayList<>();
        described.partitions().forEach(each -> all.add(new TopicPartition(described.name(), each.partition())));
        return all;
    }

    /** Counts the records by the offsets and by reading them; both must agree. */
    private String records(List<TopicPartition> partitions, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation)) {
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            long expected = 0;
            for (var end : consumer.endOffsets(partitions).entrySet()) {
                expected += end.getValue() - starts.get(end.getKey());
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            long read = 0;
            while (read < expected && System.nanoTime() < deadline) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
            return read + " of " + expected;
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", isolation);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void tell(String what, Object value) {
        System.out.println(what + "=" + value);
    }
}
